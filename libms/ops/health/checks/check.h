// Defines a check: a row of the registry and a function from evidence to a result. Passive checks (level 1) are all in
// this module: the prolog runs them as root. Active ones (levels 2 and 3) are in the module diag, which is loaded on
// demand (extension.h); level 3 is what somebody must ask for by hand: long, or with a directory of his own.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.h"
#include "health/evidence/evidence.h"

namespace ms::health {

// broken: the check itself failed. It is reported and never counted against the node.
enum class Outcome { pass, warn, critical, skip, broken };
std::string_view to_string(Outcome outcome);

// A rate that an active check measured; more is better.
struct Measured {
  std::string entity = {};  // "memory", "fp32"
  double value = 0;
  std::string unit = {};
  bool operator==(const Measured&) const = default;
};

struct Result {
  std::string code = {};
  int level = 1;  // of its check
  Outcome outcome = Outcome::pass;
  std::string note = {};                // skip, broken: why; pass: what was seen, where that is worth a line
  std::vector<Finding> findings = {};   // warn, critical: at least one
  std::vector<Measured> measured = {};  // of active checks, whatever came of it
  Counters counters = {};               // to be kept for the next run
  double wall_s = 0;                    // how long it took
};

// Checks of one lane share a process and its evidence, and run one after the other; lanes run at the same time. Active
// checks have a process each, which begins when what it takes is free.
enum class Lane { gpu, kernel, files, mounts, site, active };

// The parts of a node that an active check loads, as bits: checks that have one in common never run at the same time. A
// check that loads every core takes the node, since each of the others needs a core, too.
using Resources = unsigned;
inline constexpr Resources kGpus = 1;
inline constexpr Resources kBus = 2;  // PCIe and the memory behind it
inline constexpr Resources kDisk = 4;
inline constexpr Resources kWire = 8;
inline constexpr Resources kNode = 15;
std::vector<std::string_view> to_strings(Resources takes);  // "gpus", "bus"

enum class Cost { cheap, seconds };
std::string_view to_string(Cost cost);

struct Check {
  std::string_view code = {};  // at most 12 characters: a reason's first 20 show it behind "ms-diag:"
  int level = 1;
  Lane lane = Lane::files;
  std::string_view summary = {};  // half a sentence, lower case, no full stop
  std::string_view needs = {};    // "NVML", "/dev/kmsg": without it the check is skipped
  double deadline_s = 2;
  Blame blame = Blame::node;  // of a passive check: only node and gpu ever drain
  Cost cost = Cost::cheap;
  Resources takes = 0;           // of active checks
  bool soaks = false;            // it goes on for as long as it was asked to; deadline_s comes on top
  bool user_can_cause = false;   // then it never drains
  std::string_view proved = {};  // how, where it is not what proof() says of its lane
  // The severity of the finding when it had to be cut at its deadline. nullopt: it only computes, or waits for other
  // nodes, so that its being late says nothing of this node: it is skipped.
  std::optional<Severity> on_hang = Severity::warning;
  std::string_view explain = {};  // paragraphs for ms-checks(7): what is looked at, why, what is normal
  std::string_view remedy = {};   // a sentence; goes into every finding that has no better one
  Result (*run)(Evidence&) =
      nullptr;  // its findings need not repeat code, blame and remedy: one may name another to be called
};

// How a check was shown to find what it says: the failure was injected on "a real node" (mounts, tmpfs, load), on "a
// fake root" of the files and log lines that the kernel writes, or through "a fake NVML". What is only known from fakes
// warns where it is new, until somebody has seen it on hardware.
std::string_view proof(const Check& check);

// Helpers for the functions.
Result passed(std::string note = {});
Result skipped(std::string why);
Result broken(std::string why);
// Skipped: the check itself was too slow for its deadline, which is never a finding about the node.
Result not_measured(std::string_view why);
// warn or critical by the worst severity; pass where there are none.
Result judged(std::vector<Finding> findings, std::string note_if_none = {});

// Thrown by a check that finds out on the way that it is too slow: its result is not_measured().
class NotMeasured : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "gpu.*", "disk.mounts", "*": shell patterns, several separated by commas.
bool matches(std::string_view globs, std::string_view code);

}  // namespace ms::health
