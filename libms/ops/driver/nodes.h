// Which nodes of an allocation may work: what agents, ms-diag, ms-netcheck, Slurm and the judge say of each, and what
// follows. Checks run in the background, on nodes that do not work.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/agents.h"
#include "driver/drains.h"
#include "driver/judge.h"
#include "driver/ledger.h"
#include "driver/losses.h"
#include "driver/netcheck.h"
#include "driver/options.h"
#include "driver/pool.h"
#include "driver/suspects.h"
#include "driver/watcher.h"

namespace ms::driver {

class Nodes {
 public:
  // All but `dir`, for the output of checks, outlive it. Who is left out, and why, stands in the ledger.
  Nodes(const DriverOptions& options, const std::string& dir, Agents& agents, Ledger& ledger);

  Pool& pool() { return pool_; }
  const Pool& pool() const { return pool_; }
  std::vector<std::string> gone() const;  // lost or unusable
  // Whether the ledger or a role changed since the last call.
  bool take_changed() { return std::exchange(changed_, false); }

  void leave_out(const std::string& node, const std::string& why);
  // A node that was left out is repaired: it is looked at like a suspect, and has no strikes. Returns what was done.
  std::string readmit(const std::string& node);
  void hear(const std::string& node, const Report& report, double now_s);
  // Applies the judgement of an attempt to its nodes. `all`: of them are suspects, because it cannot be told which.
  void accuse(const Judgement& judgement, bool all, double now_s);
  // A critical finding of ms-diag on a node. `trains`: an attempt is at work; if the node is in it, it is left out by
  // the alarm that is returned, where there is a spare.
  std::optional<Alarm> take_finding(const std::string& node, const std::string& finding, bool trains, double now_s);
  // Where Slurm refused something, or did before: asks which nodes it would start ranks on, and adds those of the
  // attempt to the lost ones. Takes seconds.
  void ask_slurm(AttemptEvidence& evidence);
  // Packets that are lost accuse a node only of what they do to the run.
  std::optional<Alarm> packet_loss(const std::vector<std::string>& working, const Watcher& watcher, double now_s) const;
  std::optional<LossyNode> lossy(const std::vector<std::string>& nodes) const { return losses_.lossy(nodes); }
  // The driver alone looks whether spares are still there, and an attempt with a dead node costs more than one without:
  // spares that are silent for long are lost, those that are silent now are chosen last. Returns whether some of those
  // are needed for `working` nodes, and it will be known in seconds whether they are there.
  bool awaits_spares(double now_s, std::size_t working);
  // Slurm says that these are drained, and no others. Those that do not work
  // are excluded and returned.
  std::vector<std::string> take_drained(const Drained& drained, double now_s, double wall_s);
  // Nodes at work that are drained; without `all` those that were not heeded before. drained_s(): since when at the
  // latest.
  std::vector<std::string> drained_at_work(bool all) const;
  double drained_s() const { return drained_s_; }
  void heed_drain(const std::string& node, bool is_replaced);
  // The wall clock of the node jumped. All that jump together are one note.
  void clock_jumped(const std::string& node, double jump_s, double now_s);
  void note_clocks(double now_s, double wall_s);

  // Before the first attempt: spares too, because all are, and a bad one is better found here than when it is needed.
  void check_spares();
  // Whether a check of ms-diag must end first: of a node that said that its GPU is broken, whose work no other can
  // take.
  bool awaits_broken(std::size_t working, double now_s) const;
  bool checks() const { return suspects_.busy(); }
  // Where no node stands out, the network between them may be at fault, and an attempt with any of them would end the
  // same way: the next one waits for what ms-netcheck finds.
  void check_network(double now_s);
  bool waits_for_network() const { return waits_for_network_ && network_.busy(); }
  // Nodes at work are not measured. Who is still in doubt is looked at again, with others.
  void begin_work(const std::vector<std::string>& nodes);
  // Takes what checks have found, and begins those that are due. `working`: nodes that an attempt needs.
  void check(double now_s, bool trains, std::size_t working);
  void stop();

 private:
  void take_network(const NetworkCheck::Result& result, std::size_t working);
  void check_doubtful(double now_s, bool trains, std::size_t working);
  void clear(const std::string& node);
  void no_evidence(const std::string& node, const std::string& why, std::size_t working);

  const DriverOptions& options_;
  Agents& agents_;
  Ledger& ledger_;
  Pool pool_;
  Losses losses_;
  std::map<std::string, double> heard_s_;  // of agents
  Suspects suspects_;
  NetworkCheck network_;
  std::set<std::string> network_doubts_;  // suspects that the network may have made look so
  std::set<std::string> well_alone_;      // those of them of which ms-diag found nothing
  std::map<std::string, double> broken_;  // suspects that said so of themselves, and when
  std::set<std::string> unheeded_;        // nodes with a finding for which there is no spare
  Drained drained_;
  std::set<std::string> heeded_;                          // of them
  double drained_s_ = 0;                                  // when the last one was seen first
  std::map<std::int64_t, std::set<std::string>> jumped_;  // nodes by seconds, not yet noted
  double jumped_s_ = 0;                                   // when the first of them did
  bool waits_for_network_ = false;                        // the next attempt does
  bool changed_ = false;
};

}  // namespace ms::driver
