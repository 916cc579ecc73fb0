#include "agreement.hpp"

#include <cstring>
#include <new>

#include "type_names.hpp"

namespace allranks {

namespace {

enum class ErrorKind : std::uint32_t { kUsage, kDriver, kOther };

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kOpen: return "open";
    case StepKind::kConnect: return "connect";
    case StepKind::kOpenMulticast: return "open_multicast";
    case StepKind::kBind: return "bind";
    case StepKind::kUnbind: return "unbind";
    case StepKind::kCloseGroup: return "close group";
    case StepKind::kAllReduce: return "all_reduce";
    case StepKind::kAllGather: return "all_gather";
    case StepKind::kClose: return "close";
  }
  return "unknown step";
}

bool same(const Step& a, const Step& b) {
  return a.kind == b.kind && a.phase == b.phase && a.data_type == b.data_type && a.operation == b.operation &&
         a.count == b.count;
}

[[noreturn]] void throw_finding(int rank, const Step& step, Reader& reader) {
  const auto kind = reader.next<ErrorKind>();
  const auto code = reader.next<std::int32_t>();
  const std::string call = reader.next_bytes();
  const std::string name = reader.next_bytes();
  const std::string text = "rank " + std::to_string(rank) + ": " + text_of(step) + ": " + reader.next_bytes();
  switch (kind) {
    case ErrorKind::kUsage: throw UsageError(text, rank);
    case ErrorKind::kDriver: throw DriverError(call, code, name, text, rank);
    default: throw Error(text, rank);
  }
}

struct Heard {
  int rank = 0;
  Step step;
  bool failed = false;
  Reader reader;
};

Heard hear(int rank, const Bytes& message) {
  Reader reader(message);
  const auto step = reader.next<Step>();
  const bool failed = reader.next<std::uint32_t>() != 0;
  return {rank, step, failed, reader};
}

// A rank that closes while another goes on has gone; any other difference is somebody's mistake, and changes nothing.
[[noreturn]] void throw_difference(const Heard& first, const Heard& other) {
  const std::string text = "rank " + std::to_string(first.rank) + " is in " + text_of(first.step) + " while rank " +
                           std::to_string(other.rank) + " is in " + text_of(other.step) +
                           ": a collective step is the same on every rank";
  if (first.step.kind == StepKind::kClose) throw PeerLost(text, {first.rank});
  if (other.step.kind == StepKind::kClose) throw PeerLost(text, {other.rank});
  throw UsageError(text, other.rank);
}

}  // namespace

std::string text_of(const Step& step) {
  std::string text = name_of(step.kind);
  text += " #" + std::to_string(step.ordinal);
  if (step.kind == StepKind::kAllReduce || step.kind == StepKind::kAllGather) {
    text += std::string(" (") + std::to_string(step.count) + " " + data_type_name(step.data_type);
    if (step.kind == StepKind::kAllReduce) text += std::string(", ") + operation_name(step.operation);
    text += ')';
  } else if (step.kind == StepKind::kOpenMulticast || step.kind == StepKind::kBind) {
    text += " (" + std::to_string(step.count) + " bytes)";
  }
  return text;
}

Finding encode_error(const std::exception& error) {
  Bytes bytes;
  if (const auto* const driver = dynamic_cast<const DriverError*>(&error)) {
    append(bytes, ErrorKind::kDriver);
    append(bytes, static_cast<std::int32_t>(driver->code()));
    append_bytes(bytes, driver->call());
    append_bytes(bytes, driver->name());
  } else {
    append(bytes, dynamic_cast<const UsageError*>(&error) != nullptr ? ErrorKind::kUsage : ErrorKind::kOther);
    append(bytes, std::int32_t{0});
    append_bytes(bytes, {});
    append_bytes(bytes, {});
  }
  append_bytes(bytes, error.what());
  return bytes;
}

std::vector<Bytes> Agreement::agree(const Step& step, const Finding& finding, const Bytes& payload) {
  Bytes message;
  message.reserve(sizeof step + sizeof(std::uint32_t) + payload.size());
  append(message, step);
  append(message, static_cast<std::uint32_t>(finding.has_value() ? 1 : 0));
  message += finding.has_value() ? *finding : payload;
  const std::size_t header = sizeof step + sizeof(std::uint32_t);

  const std::vector<Bytes>& messages = bootstrap_->all_gather(message, text_of(step));
  std::vector<Bytes> payloads;
  payloads.reserve(messages.size());
  const Heard first = hear(0, messages.front());
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    Heard heard = hear(static_cast<int>(rank), messages[rank]);
    if (heard.failed) throw_finding(heard.rank, heard.step, heard.reader);
    payloads.emplace_back(messages[rank], header);
  }
  for (std::size_t rank = 1; rank < messages.size(); ++rank) {
    const Heard heard = hear(static_cast<int>(rank), messages[rank]);
    if (!same(first.step, heard.step)) throw_difference(first, heard);
  }
  return payloads;
}

void Agreement::rethrow(int rank, const Step& step, const Bytes& finding) {
  Reader reader(finding);
  throw_finding(rank, step, reader);
}

void Reader::take(void* destination, std::size_t size) {
  if (bytes_.size() - at_ < size) throw Error("a message of another rank is too short");
  std::memcpy(destination, bytes_.data() + at_, size);
  at_ += size;
}

Bytes Reader::next_bytes() {
  const auto size = next<std::uint64_t>();
  if (bytes_.size() - at_ < size) throw Error("a message of another rank is too short");
  Bytes part = bytes_.substr(at_, size);
  at_ += size;
  return part;
}

void append_bytes(Bytes& bytes, const Bytes& part) {
  append(bytes, static_cast<std::uint64_t>(part.size()));
  bytes += part;
}

}  // namespace allranks
