# Puts an importable package together in the build folder: links to the sources, and what was built.
# Development only: PYTHONPATH=<build folder>/stage.
set(stage "${CMAKE_CURRENT_BINARY_DIR}/stage/allranks")
add_custom_target(
  stage ALL
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/make_stage.py" "${CMAKE_CURRENT_SOURCE_DIR}" "${stage}"
          "$<TARGET_FILE:simcuda>" "$<TARGET_FILE:_native>" "$<TARGET_FILE:simcuda_client>" "$<TARGET_FILE:simcudart>"
          "$<TARGET_FILE:simnvml>"
  DEPENDS simcuda simcuda_client simcudart simnvml _native
  VERBATIM)
