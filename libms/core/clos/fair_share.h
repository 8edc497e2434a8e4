// Max-min fair rates of channels that share links. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::clos {

// `share` of a channel's rate passes `link`. A link may come up more than once in a channel: the shares add up.
struct Load {
  std::uint32_t link = 0;
  double share = 0;
};

// The loads of channel c are loads[first[c]] to loads[first[c + 1] - 1].
struct Loads {
  std::vector<std::size_t> first{0};
  std::vector<Load> loads;

  std::size_t channels() const { return first.size() - 1; }
  void end_channel() { first.push_back(loads.size()); }
  std::span<const Load> of(std::size_t channel) const {
    return std::span(loads).subspan(first[channel], first[channel + 1] - first[channel]);
  }
};

// Returns the rate of every channel, in the unit of `capacity`, which is by link. All flows of a channel proceed at one
// pace, as those of a ring do. The rates of all channels rise together; those on a link that becomes full stay there
// (progressive filling: Bertsekas and Gallager, Data Networks, 6.5.2). A channel without a load has the rate infinity.
std::vector<double> fair_rates(std::span<const double> capacity, const Loads& loads);

}  // namespace ms::clos
