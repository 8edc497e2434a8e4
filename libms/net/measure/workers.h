// Those who measure: agents that talk TCP (agent_workers.h), or the ranks of one launch (rank_workers.h). What is asked
// of them is the same.
#pragma once

#include <string>
#include <vector>

#include "net/measure/pair.h"
#include "net/measure/schedule.h"

namespace ms::net {

class Workers {
 public:
  virtual ~Workers() = default;

  // Those that came, by name; pairs are of indices into this.
  const std::vector<std::string>& nodes() const { return nodes_; }
  const std::vector<std::string>& missing() const { return missing_; }
  // What was said of them by whoever should have started them; empty: nothing.
  const std::string& why_missing() const { return why_missing_; }
  std::size_t invited() const { return invited_; }            // those that could have come
  virtual double link_gbps(int /*node*/) const { return 0; }  // 0: not told
  // What of a PairSpec this workers does not measure, for the report.
  virtual std::vector<std::string> not_run() const { return {}; }

  // All pairs of a round at the same time. Results in the order of the pairs, with `a` and `b` set to its two nodes.
  // `source_port` is that of the first flow, for those who can choose; 0: any.
  virtual std::vector<PairResult> test(const Round& round, const PairSpec& spec, int source_port = 0) = 0;
  // False once nothing more can be measured: what is left to test is not.
  virtual bool works() const { return true; }

 protected:
  std::vector<std::string> nodes_, missing_;
  std::string why_missing_;
  std::size_t invited_ = 0;
};

}  // namespace ms::net
