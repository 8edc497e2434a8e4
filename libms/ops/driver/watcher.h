// Holds what the driver knows of a running attempt, from its agents' reports, and says when that is an alarm. Training
// is synchronous: while steps end, every node is there, whatever its agent says or does not say; when they stop,
// silence counts, unless the node's kernel still answers (prober.h). Pure: time is passed in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/wire.h"
#include "watch/deadlines.h"
#include "watch/recovery.h"

namespace ms::driver {

using watch::report_every_s;
using watch::WatchLimits;

enum class AlarmKind { rank_died, node_lost, hang, evicted, finding, packet_loss, drained, slow };

struct Alarm {
  AlarmKind kind = AlarmKind::hang;
  std::vector<std::string> nodes;  // concerned: where ranks died, that are lost
  std::vector<int> ranks;
  double fault_s = 0;  // when it happened, as far as one can tell
  std::string why;
};

class Watcher {
 public:
  // The nodes of an attempt, which begins at `now_s`. `deadlines`, of all attempts of the run, outlives the watcher.
  Watcher(int attempt, std::vector<std::string> nodes, const WatchLimits& limits, watch::Deadlines& deadlines,
          double now_s);

  void report(const std::string& node, const Report& report, double now_s);
  // Its agent said something else than a report.
  void heard(const std::string& node, double now_s);
  // The node's kernel answered: it is there, even if its agent is not.
  void answered(const std::string& node, double now_s);
  // The command wrote something: the only sign of life of one without heartbeats.
  void output(double now_s) { output_ = {.at_s = now_s}; }
  // The driver itself did not run for so long: silence during it means nothing. A driver that lacks processors is away
  // again and again: then no more than kMostAway_s of a silence and the last absence are forgiven, or it would last for
  // ever.
  static constexpr double kMostAway_s = 30;
  void was_away(double seconds);

  // The connection of its agent was closed: the node or its agent ended, and is not merely cut off or paused.
  void closed(const std::string& node);

  // A silent node is lost if the ranks, too, have made no progress for longer than their sections of a step have taken
  // of late. Silence alone does not tell a node that is gone from one that is paused or cut off for a while: where the
  // run cannot continue without it (not `is_replaceable`), or nothing is known of the ranks' progress, it has
  // WatchLimits::node_s.
  std::optional<Alarm> check(double now_s, bool is_replaceable) const;
  // Nodes of which nothing was heard and that do not answer, whatever the ranks do.
  std::vector<std::string> lost(double now_s) const;
  // Every node was heard of since, or is lost.
  bool heard_all_since(double since_s, double now_s) const;

  // Steps done, as the slowest rank says, or this one; -1: none said so.
  std::int64_t steps() const;
  std::int64_t steps_of(int rank) const;
  bool has_beats() const { return !ranks_.empty(); }
  bool ended() const;  // every rank that was heard of says so
  double last_progress_s() const { return progress_.at_s; }
  // How long no rank may get on, as it looks at `now_s`.
  double deadline_s(double now_s) const;
  // It will be a hang in less than kEarly_s, unless a rank gets on.
  static constexpr double kEarly_s = 1;
  bool nearly_hangs(double now_s) const;
  // No rank has got on for much longer than a step takes, though that is no hang yet.
  bool is_slow(double now_s) const;
  struct Rank {
    std::string node;
    RankState state;
    double changed_s = 0;
    std::optional<double> died_s = {};
  };
  const std::map<int, Rank>& ranks() const { return ranks_; }
  // Nodes whose agents have said nothing for so long, and those that never answered anything.
  std::vector<std::string> unasked_or_silent(double seconds, double now_s) const;
  // When a rank died first, unless it was done, and the nodes on which ranks died then.
  std::optional<double> died_s() const { return died_s_; }
  std::vector<std::string> first_dead() const;
  // A section that saves ended after `since_s`, and every rank has done a step since. Programs that name no such
  // section do not tell.
  bool has_saved_since(double since_s) const { return saved_s_ > since_s && steps() > saved_step_; }

 private:
  // When something came last, put off by what is forgiven since.
  struct Sign {
    double at_s = 0, away_s = 0;
    void forgive(double seconds);
  };
  struct Node {
    Sign heard;  // of its agent
    std::optional<Sign> answered = {};
    bool closed = false;
  };
  double alive_s(const Node& node) const;
  double silence_s(const Node& node, bool is_replaceable) const;
  // The longest of what is known of the sections that ranks are in; nullopt: of one of them nothing is.
  std::optional<double> of_sections(std::optional<double> (watch::Deadlines::*known)(std::string_view) const) const;
  bool is_clear(double now_s) const;
  bool is_lost(const Node& node, double alive_s, double now_s) const;

  int attempt_;
  WatchLimits limits_;
  watch::Deadlines& deadlines_;
  std::map<std::string, Node> nodes_;
  std::map<int, Rank> ranks_;
  Sign progress_;  // any rank got on
  Sign output_;
  double unclear_s_;  // a rank may have lacked a processor, or waited for a device
  std::optional<double> died_s_;
  double resend_s_ = 0;    // after a silence, TCP may wait as long again before it sends what was lost in it
  double saved_s_ = -1e9;  // when a section that saves ended last, and the furthest step then
  std::int64_t saved_step_ = -1;
};

}  // namespace ms::driver
