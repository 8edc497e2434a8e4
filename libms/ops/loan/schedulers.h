// The schedulers that a replay compares: a row each. Adding a row adds it to the replay, the help and the manual.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "loan/victims.h"

namespace ms::loan {

enum class Order : std::uint8_t {
  first_come,     // strictly: the first one that does not fit stops all others
  backfill,       // first come, and later jobs that do not delay the first one (EASY, by estimates)
  shortest_first  // least estimated work left, among those that fit
};
enum class Lend : std::uint8_t {
  none,
  all,     // every node that inference does not need now
  reserve  // all but the policy's reserve and headroom
};
enum class Extra : std::uint8_t { none, knapsack, equal };

struct Scheduler {
  std::string_view name;
  Order order = Order::first_come;
  Lend lend = Lend::none;
  VictimRule victims = VictimRule::cost;
  Extra extra = Extra::none;
  std::string_view doc;  // half a sentence
};

std::span<const Scheduler> schedulers();
const Scheduler* find_scheduler(std::string_view name);

}  // namespace ms::loan
