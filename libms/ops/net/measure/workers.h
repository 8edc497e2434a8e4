// The interface of everything that measures: agents over TCP (agent_workers.h), or the ranks of one launch
// (rank_workers.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "link/acceptor.h"
#include "net/measure/pair.h"
#include "net/measure/schedule.h"

namespace ms::net {

inline constexpr const char* kCoordinator = "the coordinator";

class Workers {
 public:
  virtual ~Workers() = default;

  // The nodes that joined, by name; pairs hold indices into this.
  const std::vector<std::string>& nodes() const { return nodes_; }
  const std::vector<std::string>& missing() const { return missing_; }
  // The launcher's message about the missing nodes, or why they cannot measure; empty: none.
  const std::string& why_missing() const { return why_missing_; }
  std::size_t invited() const { return invited_; }            // those that could have come
  virtual double link_gbps(int /*node*/) const { return 0; }  // 0: not told
  // Lists the parts of a PairSpec that these workers do not measure, for the report.
  virtual std::vector<std::string> not_run() const { return {}; }
  // Returns who connected without the secret so far, by where: kCoordinator, or a node. Waits for the nodes' answers.
  virtual std::map<std::string, link::Unauthenticated> unauthenticated() { return {}; }

  // Tests all pairs of a round at the same time. Returns the results in the order of the pairs, with `a` and `b` set to
  // its two nodes. `source_port` is that of the first flow, for workers that can choose it; 0: any.
  virtual std::vector<PairResult> test(const Round& round, const PairSpec& spec, int source_port = 0) = 0;
  // Returns false once nothing more can be measured; the remaining tests are skipped.
  virtual bool works() const { return true; }
  // The operation that does not end and why, if it ended the measurements and nothing tells which node is at fault.
  struct Undecided {
    std::string operation, why;
  };
  const std::optional<Undecided>& undecided() const { return undecided_; }

 protected:
  std::vector<std::string> nodes_, missing_;
  std::string why_missing_;
  std::size_t invited_ = 0;
  std::optional<Undecided> undecided_;
};

}  // namespace ms::net
