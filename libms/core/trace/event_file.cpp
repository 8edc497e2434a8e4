#include "trace/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>

#include "base/error.h"
#include "base/file.h"

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

template <class T>
void put_fixed(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 0xFFU);
}

// A message of protobuf, field by field.
class Message {
 public:
  void add(unsigned field, double value) { put_fixed(tagged(field, 1), std::bit_cast<std::uint64_t>(value)); }
  void add(unsigned field, float value) { put_fixed(tagged(field, 5), std::bit_cast<std::uint32_t>(value)); }
  void add(unsigned field, std::int64_t value) { put_varint(tagged(field, 0), static_cast<std::uint64_t>(value)); }
  void add(unsigned field, std::string_view bytes) {
    put_varint(tagged(field, 2), bytes.size());
    bytes_ += bytes;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string& tagged(unsigned field, unsigned wire_type) {
    put_varint(bytes_, std::uint64_t{field} << 3U | wire_type);
    return bytes_;
  }
  static void put_varint(std::string& to, std::uint64_t value) {
    for (; value > 0x7FU; value >>= 7U) to += static_cast<char>((value & 0x7FU) | 0x80U);
    to += static_cast<char>(value);
  }
  std::string bytes_;
};

Message event_at(std::int64_t step, double wall_s) {
  Message event;
  event.add(1, wall_s);
  event.add(2, step);
  return event;
}

// A CRC that is stored among the data it covers says little about a CRC of both: TFRecords mask theirs.
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U; }

std::string record_of(const Message& event) {
  std::string record;
  put_fixed(record, std::uint64_t{event.bytes().size()});
  put_fixed(record, masked_crc(record));
  record += event.bytes();
  put_fixed(record, masked_crc(event.bytes()));
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
  Message version = event_at(0, wall_s);
  version.add(3, std::string_view("brain.Event:2"));
  Message start;
  start.add(1, std::int64_t{1});
  Message session = event_at(first_step, wall_s);
  session.add(7, start.bytes());
  file_.write(record_of(version) + record_of(session));
}

void EventFile::write(std::int64_t step, double wall_s, const std::vector<Scalar>& scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    Message value;
    value.add(1, std::string_view(scalar.tag));
    value.add(2, static_cast<float>(scalar.value));
    summary.add(1, value.bytes());
  }
  Message event = event_at(step, wall_s);
  event.add(5, summary.bytes());
  file_.write(record_of(event));
}

}  // namespace ms::trace
