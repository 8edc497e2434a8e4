#include "trace/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>

#include "base/error.h"
#include "base/file.h"
#include "trace/protobuf.h"

namespace ms::trace {
namespace {

constexpr auto kCrcOfByte = [] {
  constexpr std::uint32_t kCastagnoli = 0x82F63B78;  // reflected
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kCastagnoli : 0U);
    table[byte] = crc;
  }
  return table;
}();

using protobuf::add_bytes;
using protobuf::add_fixed;
using protobuf::add_little_endian;
using protobuf::add_number;

std::string event_at(std::int64_t step, double wall_s) {
  std::string event;
  add_fixed(event, 1, std::bit_cast<std::uint64_t>(wall_s));
  add_number(event, 2, static_cast<std::uint64_t>(step));
  return event;
}

// A CRC that is stored among the data it covers says little about a CRC of both: TFRecords mask theirs.
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U; }

std::string record_of(const std::string& event) {
  std::string record;
  add_little_endian(record, std::uint64_t{event.size()});
  add_little_endian(record, masked_crc(record));
  record += event;
  add_little_endian(record, masked_crc(event));
  return record;
}

// TensorBoard reads the files of a directory in the order of their names, and takes those with "tfevents" in it.
std::string new_event_path(const std::string& dir, double wall_s) {
  make_directories(dir);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("{}/events.out.tfevents.{:010.0f}.{}.{}", dir, wall_s, host.data(), getpid());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = (crc >> 8U) ^ kCrcOfByte[(crc ^ static_cast<unsigned char>(c)) & 0xFFU];
  return ~crc;
}

EventFile::EventFile(const std::string& dir, std::int64_t first_step, double wall_s)
    : file_(new_event_path(dir, wall_s)) {
  std::string version = event_at(0, wall_s), start, session = event_at(first_step, wall_s);
  add_bytes(version, 3, "brain.Event:2");
  add_number(start, 1, 1);
  add_bytes(session, 7, start);
  file_.write(record_of(version) + record_of(session));
}

void EventFile::write(std::int64_t step, double wall_s, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    add_bytes(value, 1, scalar.tag);
    add_fixed(value, 2, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    add_bytes(summary, 1, value);
  }
  std::string event = event_at(step, wall_s);
  add_bytes(event, 5, summary);
  file_.write(record_of(event));
}

}  // namespace ms::trace
