#include "clos/hash.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/rng.h"

namespace ms::clos {
namespace {

constexpr std::uint64_t kSwitchKey = rng_key("ECMP seed of a switch"), kUniformKey = rng_key("ideal ECMP hash");

constexpr std::array<std::uint32_t, 256> kCrc32 = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    table[byte] = crc;
  }
  return table;
}();
constexpr std::array<std::uint16_t, 256> kCrc16 = [] {
  std::array<std::uint16_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte << 8U;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1U) ^ ((crc & 0x8000U) != 0 ? 0x1021U : 0U);
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}();

}  // namespace

std::uint16_t roce_source_port(std::uint32_t local, std::uint32_t remote) {
  std::uint64_t folded = std::uint64_t{local} * remote;
  folded ^= folded >> 20U;
  folded ^= folded >> 40U;
  const auto label = static_cast<std::uint32_t>(folded) & 0xFFFFFU;
  return static_cast<std::uint16_t>(0xC000U | ((label & 0x3FFFU) ^ (label >> 14U)));
}

std::uint32_t crc32_of(std::span<const std::uint8_t> bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  for (const std::uint8_t byte : bytes) crc = kCrc32[(crc ^ byte) & 0xFFU] ^ (crc >> 8U);
  return ~crc;
}

std::uint16_t crc16_of(std::span<const std::uint8_t> bytes, std::uint16_t seed) {
  std::uint32_t crc = 0xFFFFU ^ seed;
  for (const std::uint8_t byte : bytes) crc = kCrc16[(crc >> 8U) ^ byte] ^ (crc << 8U & 0xFFFFU);
  return static_cast<std::uint16_t>(crc);
}

EcmpHash::EcmpHash(const EcmpConfig& config)
    : kind_(config.hash == "crc32" ? Kind::crc32 : (config.hash == "crc16" ? Kind::crc16 : Kind::uniform)),
      seed_(static_cast<std::uint64_t>(config.seed)),
      same_seed_(config.same_seed) {
  MS_ASSERT(config.hash != "adaptive", "adaptive routing hashes nothing");
  const auto reads = [&](const char* field) { return std::ranges::find(config.fields, field) != config.fields.end(); };
  src_ip_ = reads("src_ip");
  dst_ip_ = reads("dst_ip");
  protocol_ = reads("protocol");
  src_port_ = reads("src_port");
  dst_port_ = reads("dst_port");
}

std::uint32_t EcmpHash::seed_of(std::uint32_t number) const {
  return static_cast<std::uint32_t>(random_u64(seed_, kSwitchKey, same_seed_ ? 0 : number));
}

std::uint32_t EcmpHash::choose(const FiveTuple& flow, std::uint32_t seed, std::uint32_t ways) const {
  if (ways == 1) return 0;
  if (kind_ == Kind::uniform) {
    const std::uint64_t ips = std::uint64_t{flow.src_ip} << 32U | flow.dst_ip;
    const std::uint64_t ports = std::uint64_t{flow.src_port} << 16U | flow.dst_port;
    return static_cast<std::uint32_t>(uniform_below(ips ^ kUniformKey, seed, ports, ways));
  }
  std::array<std::uint8_t, 13> bytes{};
  std::size_t size = 0;
  const auto add = [&](std::uint32_t value, std::uint32_t bits) {
    for (std::uint32_t shift = bits; shift > 0; shift -= 8)
      bytes[size++] = static_cast<std::uint8_t>(value >> (shift - 8U));
  };
  if (src_ip_) add(flow.src_ip, 32);
  if (dst_ip_) add(flow.dst_ip, 32);
  if (protocol_) add(kUdp, 8);
  if (src_port_) add(flow.src_port, 16);
  if (dst_port_) add(flow.dst_port, 16);
  const std::span<const std::uint8_t> read(bytes.data(), size);
  return (kind_ == Kind::crc32 ? crc32_of(read, seed) : crc16_of(read, static_cast<std::uint16_t>(seed))) % ways;
}

}  // namespace ms::clos
