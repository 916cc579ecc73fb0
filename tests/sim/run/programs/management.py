"""What NVML says of a simulated host, through the module of cuda-bindings that other people's programs use."""

from __future__ import annotations

import importlib
import sys
from typing import Any

nvml: Any = importlib.import_module("cuda.bindings.nvml")
nvml.init_v2()
count = nvml.device_get_count_v2()
first, last = (nvml.device_get_handle_by_index_v2(index) for index in (0, count - 1))
uuid = nvml.device_get_uuid(last)
pci = nvml.device_get_pci_info_v3(last)
assert nvml.device_get_handle_by_uuid(uuid) == last
assert nvml.device_get_handle_by_pci_bus_id_v2(pci.bus_id) == last
assert pci.bus == count, pci.bus
memory = nvml.device_get_memory_info_v2(last)
assert memory.total == memory.free + memory.used
assert nvml.device_get_cuda_compute_capability(last) == (9, 0)
assert nvml.device_get_p2p_status(first, last, 0) == 0
fabric = nvml.device_get_gpu_fabric_info_v(last)
assert fabric.state == 3
assert nvml.device_get_name(last).startswith("Simulated GPU")
assert nvml.system_get_nvml_version().endswith(nvml.system_get_driver_version())
try:
    nvml.device_get_temperature_v(last, 0)
except nvml.NotSupportedError:
    sys.stdout.write(f"{count} devices\n")
nvml.shutdown()
