// A check of a fabric from beginning to end: agents are started, rounds are run, and what they measured is judged.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "net/ecmp.h"
#include "net/pair.h"
#include "net/report.h"

namespace ms::net {

enum class Cover { automatic, quick, ring, all, distance };
Cover parse_cover(const std::string& text);  // "auto", "quick" and so on; Error("cli.value", user)

struct CheckOptions {
  std::vector<std::string> nodes;  // by name
  std::string launch = "srun";     // see launcher.h
  std::vector<std::string> agent;  // the command of an agent
  std::string interface = {};      // prefix of the names of those to be used
  double wait_s = 30;              // for agents
  PairSpec spec = {};
  Cover cover = Cover::automatic;  // of `pairs`; see schedule.h
  std::vector<int> group_of = {};  // leaf switch of each node; empty: not known
  std::vector<std::string> switches = {};
  Thresholds thresholds = {};
  std::function<void(const std::string&)> announce;  // before anything is sent: how much, how long
  std::function<void(int done, int of)> progress;    // rounds; `of` is 0 where nobody knows
};

// Flows of one pair, again and again with other source ports.
struct PairFlows {
  int a = 0, b = 0;  // flows go from a to b
  struct Roll {
    int first_port = 0;
    std::vector<double> alone, together;  // Gbit/s by flow
    FlowJudgement judgement;
  };
  std::vector<Roll> rolls = {};
  double together_gbps = 0;       // all flows, nobody else sends
  double beside_others_gbps = 0;  // while all pairs send
  std::string error = {};         // why there is nothing, or not all of it

  // The worst of the rolls: a slow path, then a collision.
  FlowVerdict verdict() const;
};
struct FlowsChecked {
  Checked base;  // nodes, who is missing, how long it took
  std::vector<PairFlows> pairs;
};
struct FlowOptions {
  int flows = 8, rolls = 3, repeats = 2;
};

// Throws Error("net.nodes", user) for fewer than two nodes.
FlowsChecked check_flows(const CheckOptions& options, const FlowOptions& flows);
Checked check_pairs(const CheckOptions& options);  // measures by a schedule, judges nobody
Checked locate(const CheckOptions& options);       // measures what it takes to name who is at fault

// What nodes tell of themselves, by node: "counters" or "facts"; empty texts where one did not answer. With `seconds`
// above 0 they are asked again every `interval_s` for so long; `look` is called with the answers each time.
using Told = std::vector<std::string>;
Checked ask_nodes(const CheckOptions& options, const std::string& what, double seconds, double interval_s,
                  const std::function<void(const std::vector<std::string>& nodes, const Told& told)>& look);

}  // namespace ms::net
