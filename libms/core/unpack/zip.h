// The members of a zip archive that keeps them as they are, uncompressed, as torch.save writes it. It may lie in a part
// of a file. Only the central directory, at its end, says where members are. Pure but for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::unpack {

struct ZipMember {
  std::string name;
  std::int64_t begin = 0, size_bytes = 0;  // of its data, in the archive
  std::uint32_t crc = 0;
};

// Copies bytes of the archive, from `at` on.
using ReadAt = std::function<void(std::int64_t at, std::span<std::byte> to)>;

// In the order of their data. Error("data.zip", user): no central directory (the archive was cut off), it does not fit
// the headers of the members, members overlap or are compressed. Reads the directory and a header of each member.
std::vector<ZipMember> zip_members(const ReadAt& read, std::int64_t size_bytes);

// CRC-32 as zip has it; of pieces: `crc` is that of what came before.
std::uint32_t zip_crc(std::uint32_t crc, std::span<const std::byte> data);

}  // namespace ms::unpack
