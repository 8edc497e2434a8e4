// Things that take a while and share what they pass through, in virtual time: messages on links, operations on
// processors. Each goes at its own rate as long as it is alone; of a resource that several use at a time, each gets an
// equal part, and the scarcest of its resources holds it back. What one leaves unused, the others do not get: a bound
// that is exact where flows are alike. Deterministic, pure.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <vector>

namespace ms::cost {

class Flows {
 public:
  // capacity[r]: how many flows at their full rate resource r takes.
  explicit Flows(std::vector<double> capacity) : capacity_(std::move(capacity)), on_(capacity_.size()) {}

  // A flow that begins at `begin_s` and takes `seconds` where it is alone; at once where that is 0. Not before the last
  // end that next() gave. The number is given anew once the flow has ended; `resources` stay where they are until then.
  std::uint32_t start(double begin_s, double seconds, std::span<const std::uint32_t> resources);
  // The next one to end; of those that end at a time, in the order in which that became known.
  struct End {
    std::uint32_t flow = 0;
    double at_s = 0;
  };
  std::optional<End> next();

 private:
  struct Flow {
    double left_s = 0;  // at its full rate
    double share = 0, since_s = 0;
    std::uint32_t version = 0;
    std::span<const std::uint32_t> resources;
  };
  struct Due {
    double at_s = 0;
    std::uint64_t order = 0;
    std::uint32_t flow = 0, version = 0;
    bool begins = false;
    bool operator>(const Due& other) const { return std::tie(at_s, order) > std::tie(other.at_s, other.order); }
  };
  void push(double at_s, std::uint32_t flow, bool begins);
  void share_anew(std::uint32_t flow, double now_s);

  std::vector<double> capacity_;
  std::vector<std::vector<std::uint32_t>> on_;  // [resource]: flows
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_, touched_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::uint64_t pushed_ = 0;
};

}  // namespace ms::cost
