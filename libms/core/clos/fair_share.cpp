#include "clos/fair_share.h"

#include <algorithm>
#include <limits>

namespace ms::clos {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kEqual = 1 + 1e-12;  // levels that differ by rounding only

struct Link {
  double left = 0;                          // capacity that channels of a known rate leave
  double rising = 0;                        // sum of the shares of the channels whose rate still rises
  std::vector<std::uint32_t> entries = {};  // channels, once for each load
  std::size_t open = 0;                     // entries of channels whose rate still rises
  double level() const { return open == 0 ? kInfinite : std::max(0.0, left) / rising; }
};

}  // namespace

std::vector<double> fair_rates(std::span<const double> capacity, const Loads& loads) {
  constexpr std::uint32_t kUnused = ~0U;
  std::vector<std::uint32_t> index(capacity.size(), kUnused);
  std::vector<Link> links;
  for (std::size_t c = 0; c < loads.channels(); ++c) {
    for (const Load& load : loads.of(c)) {
      if (index[load.link] == kUnused) {
        index[load.link] = static_cast<std::uint32_t>(links.size());
        links.push_back({.left = capacity[load.link]});
      }
      Link& link = links[index[load.link]];
      link.rising += load.share;
      link.entries.push_back(static_cast<std::uint32_t>(c));
      ++link.open;
    }
  }
  std::vector<double> rates(loads.channels(), kInfinite);
  while (true) {
    double level = kInfinite;
    for (const Link& link : links) level = std::min(level, link.level());
    if (level == kInfinite) return rates;
    std::vector<std::uint32_t> full;
    for (const Link& link : links)
      if (link.level() <= level * kEqual) full.insert(full.end(), link.entries.begin(), link.entries.end());
    for (const std::uint32_t channel : full) {
      if (rates[channel] != kInfinite) continue;
      rates[channel] = level;
      for (const Load& load : loads.of(channel)) {
        Link& link = links[index[load.link]];
        link.left -= level * load.share;
        link.rising -= load.share;
        --link.open;
      }
    }
  }
}

}  // namespace ms::clos
