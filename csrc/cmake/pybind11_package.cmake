# Finds the pybind11 that the build's Python has.
set(PYBIND11_FINDPYTHON ON)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
  OUTPUT_VARIABLE pybind11_folder OUTPUT_STRIP_TRAILING_WHITESPACE)
find_package(pybind11 CONFIG REQUIRED HINTS "${pybind11_folder}")
