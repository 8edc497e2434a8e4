#include "net/measure/pattern.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace ms::net {
namespace {

constexpr std::size_t kPeriod = 31;  // prime: no power of two, such as a block that went astray, hides

// Many of them, so that memory is written and read at its speed: perf.reduce does it in every turn.
using Period = std::array<float, kPeriod * 64>;

constexpr int summand(std::size_t index, int rank) {
  return static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 13 + 3) % kPeriod);
}

constexpr std::uint32_t word(std::size_t index, int from, int to, int round) {
  const std::uint32_t seed = static_cast<std::uint32_t>(from) * 0x9E3779B1U ^
                             static_cast<std::uint32_t>(to) * 0x85EBCA77U ^
                             static_cast<std::uint32_t>(round) * 0xC2B2AE3DU;
  return seed + static_cast<std::uint32_t>(index) * 0x27D4EB2FU;
}

}  // namespace

void fill_summand(std::span<float> x, int rank) {
  Period period;
  for (std::size_t i = 0; i < period.size(); ++i) period[i] = static_cast<float>(summand(i % kPeriod, rank));
  for (std::size_t begin = 0; begin < x.size(); begin += period.size()) {
    std::copy_n(period.begin(), std::min(period.size(), x.size() - begin),
                x.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

std::size_t count_wrong_sums(std::span<const float> x, int ranks) {
  Period period;
  for (std::size_t i = 0; i < period.size(); ++i) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks && i < kPeriod; ++rank) sum += summand(i, rank);
    period[i] = i < kPeriod ? static_cast<float>(sum) : period[i - kPeriod];
  }
  std::size_t wrong = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += period.size()) {
    const std::size_t count = std::min(period.size(), x.size() - begin);
    for (std::size_t i = 0; i < count; ++i) wrong += x[begin + i] == period[i] ? 0 : 1;
  }
  return wrong;
}

void fill_block(std::span<std::uint32_t> x, int from, int to, int round) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = word(i, from, to, round);
}

std::size_t count_wrong_words(std::span<const std::uint32_t> x, int from, int to, int round) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) wrong += x[i] == word(i, from, to, round) ? 0 : 1;
  return wrong;
}

// The round-robin of tournaments: the last one stays, the others turn around it.
int partner_of(int rank, int round, int ranks) {
  MS_ASSERT(ranks % 2 == 0 && ranks > 0, "{} ranks cannot be paired", ranks);
  const int turning = ranks - 1;
  if (rank == turning)
    return round % 2 == 0 ? round / 2 : (round + turning) / 2;  // whom 2p = round (mod turning) gives
  const int partner = ((round - rank) % turning + turning) % turning;
  return partner == rank ? turning : partner;
}

}  // namespace ms::net
