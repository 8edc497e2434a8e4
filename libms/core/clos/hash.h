// The hash by which a switch chooses one of several links, of the five-tuple of a RoCE v2 flow. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "clos/fabric.h"

namespace ms::clos {

inline constexpr std::uint8_t kUdp = 17;
inline constexpr std::uint16_t kRoceV2Port = 4791;  // InfiniBand Architecture, annex A17

struct FiveTuple {
  std::uint32_t src_ip = 0, dst_ip = 0;
  std::uint16_t src_port = 0, dst_port = kRoceV2Port;
};

// Returns the UDP source port that a NIC gives to a queue pair whose peer has number `remote`, as Linux computes it if
// the flow label is not set, which NCCL leaves at 0 (include/rdma/ib_verbs.h): one number times the other,
// folded to 20 bits and then to 14, above 0xC000.
std::uint16_t roce_source_port(std::uint32_t local, std::uint32_t remote);

// CRC-32 of IEEE 802.3 (reflected polynomial 0xEDB88320), and CRC-16 with polynomial 0x1021. With seed 0 they return
// the check values of "123456789" in the literature: 0xCBF43926, 0x29B1. The seed changes the initial value.
std::uint32_t crc32_of(std::span<const std::uint8_t> bytes, std::uint32_t seed);
std::uint16_t crc16_of(std::span<const std::uint8_t> bytes, std::uint16_t seed);

// Chooses a link of `ways` for a flow. The result depends on nothing but the arguments.
class EcmpHash {
 public:
  // `config.hash` is not "adaptive".
  explicit EcmpHash(const EcmpConfig& config);
  std::uint32_t choose(const FiveTuple& flow, std::uint32_t seed, std::uint32_t ways) const;
  // The seed of the switch with this number.
  std::uint32_t seed_of(std::uint32_t number) const;

 private:
  enum class Kind : std::uint8_t { crc32, crc16, uniform };
  Kind kind_;
  bool src_ip_, dst_ip_, protocol_, src_port_, dst_port_;
  std::uint64_t seed_;
  bool same_seed_;
};

}  // namespace ms::clos
