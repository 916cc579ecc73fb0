"""Print the folder that holds cuda.h, or nothing: the nvidia-cuda-runtime wheel's first, else a CUDA toolkit's."""

import os
import sys
from importlib import util
from pathlib import Path


def candidates() -> list[Path]:
    """List the folders to look into, best first."""
    folders: list[Path] = []
    nvidia = util.find_spec("nvidia")
    for location in (nvidia.submodule_search_locations or []) if nvidia else []:
        folders += [Path(location) / "cu13" / "include", Path(location) / "cuda_runtime" / "include"]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            folders.append(Path(os.environ[variable]) / "include")
    return [*folders, Path("/usr/local/cuda/include")]


for folder in candidates():
    if (folder / "cuda.h").is_file():
        sys.stdout.write(str(folder))
        break
