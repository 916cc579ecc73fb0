#include "registered_memory.hpp"

#include "agreement.hpp"
#include "errors.hpp"

namespace allranks {

namespace {

struct DescribedPiece {
  std::int32_t descriptor = -1;
  std::uint64_t allocation_bytes = 0;
};

void export_piece(Cleanup& cleanup, AllocationHandle handle, std::size_t size, ExportedMemory& exported) {
  int descriptor = -1;
  cleanup.driver().cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  exported.descriptors.emplace_back(cleanup, descriptor);
  append(exported.description, DescribedPiece{descriptor, size});
}

ImportedHandle import_piece(Cleanup& cleanup, int descriptor) {
  AllocationHandle handle = 0;
  void* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  cleanup.driver().cuMemImportFromShareableHandle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return {cleanup, handle};
}

}  // namespace

ExportedMemory export_region(Cleanup& cleanup, const std::string& name, const Region& region) {
  if (!region.exportable()) {
    throw UsageError(name + "=" + place_text(region.address(), region.size()) +
                     ": peers reach only memory of cuMemCreate with a POSIX file descriptor as its handle type");
  }
  ExportedMemory exported;
  const std::uint64_t offset = region.segments().empty() ? 0 : region.segments().front().identity.offset;
  append(exported.description, offset);
  append(exported.description, region.size());
  append(exported.description, static_cast<std::uint64_t>(region.segments().size()));
  for (const RegionSegment& segment : region.segments()) {
    export_piece(cleanup, segment.identity.handle, segment.mapping_bytes, exported);
  }
  return exported;
}

ExportedMemory export_allocation(Cleanup& cleanup, AllocationHandle handle, std::size_t size) {
  ExportedMemory exported;
  append(exported.description, std::uint64_t{0});
  append(exported.description, static_cast<std::uint64_t>(size));
  append(exported.description, std::uint64_t{1});
  export_piece(cleanup, handle, size, exported);
  return exported;
}

RegisteredMemory::RegisteredMemory(Cleanup& cleanup, CUdevice device, const Bytes& description) {
  Reader reader(description);
  const auto offset = reader.next<std::uint64_t>();
  size_ = reader.next<std::uint64_t>();
  const auto count = reader.next<std::uint64_t>();
  if (count == 0) return;
  // The mapping keeps the memory alive, so each imported handle goes back as soon as it is mapped.
  std::vector<ImportedHandle> handles;
  std::vector<MappedPiece> pieces;
  handles.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto piece = reader.next<DescribedPiece>();
    handles.push_back(import_piece(cleanup, piece.descriptor));
    pieces.push_back({handles.back().get(), piece.allocation_bytes});
  }
  range_ = MappedRange(cleanup, device, pieces);
  address_ = range_.address() + offset;
}

}  // namespace allranks
