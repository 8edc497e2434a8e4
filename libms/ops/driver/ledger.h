// The ledger of a run: every attempt of every start, with what ended it and what it cost. A file in the run's
// directory, written whole after each change, so that a driver that was killed, or a start of a requeued job, goes on
// with it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ms::driver {

// Causes of attempts that Slurm did not start begin with this.
inline constexpr std::string_view kSlurmCauses = "slurm_";
// Those of storage that fails begin with this.
inline constexpr std::string_view kStorage = "storage";
inline constexpr std::string_view kHang = "hang";
// A rank ended, and no line tells why.
inline constexpr std::string_view kWordless = "rank_died";
// The attempt ended so that the job could be queued again for another number of nodes.
inline constexpr std::string_view kResizesCause = "resizes";
// It ended after a checkpoint, because an administrator drained one of its nodes.
inline constexpr std::string_view kDrained = "drained";
// The same, because the node is slow.
inline constexpr std::string_view kSlowNode = "slow_node";
// Codes of notes about slow nodes: its steps are slow, they are no longer, and why it is kept.
inline constexpr const char* kSlow = "slow";
inline constexpr const char* kSlowEnded = "slow_ended";
inline constexpr const char* kSlowStays = "recovery.slow_stays";

struct AttemptEntry {
  int number = 0;
  std::string job;  // with its restart: "123.0"
  std::vector<std::string> nodes;
  double began_s = 0;                         // wall clock, since 1970
  double first_step_s = 0;                    // when its first step ended; 0: none did
  double alarm_s = 0;                         // when a fault was noticed that ended it; 0: none was before its end
  double ended_s = 0;                         // 0: it runs
  std::int64_t from_step = -1, to_step = -1;  // steps done at its first and its last heartbeat; -1: not known
  std::string cause;
  int code = 0;
  std::string why;
  std::string error = {};  // as of Judgement, with the next two
  int rank = -1;
  std::vector<std::string> said_on = {};
  std::vector<std::string> suspects, excluded;
  double detect_s = 0;    // from the fault to the alarm; without one, to the end
  double diagnose_s = 0;  // from the alarm to the judgement
  double slow_s = 0;      // lost to slow steps, see Pace
  double recover_s = 0;   // from the alarm to the first step of the next attempt; 0: none came
};

// Something that happened and ended no attempt.
struct Note {
  double at_s = 0;   // wall clock
  std::string code;  // "clock", "drain", kSlow and the next two
  std::vector<std::string> nodes;
  std::string text;
};

struct Ledger {
  static constexpr std::size_t kMostNotes = 100;
  // An attempt of a command that tells no steps has made progress if it lasted so long.
  static constexpr double kWorksUnheard_s = 600;
  std::vector<std::string> command;
  double began_s = 0;
  std::vector<AttemptEntry> attempts;
  std::map<std::string, int> strikes;           // by node
  std::map<std::string, std::string> excluded;  // by node, why
  std::map<std::string, std::string> unheard;   // nodes whose agents cannot hear heartbeats, why
  std::vector<Note> notes = {};                 // the newest kMostNotes

  void add(Note note);
  // How long a node was slow that was not replaced, in the mean of those that ended, with `prior_s` as one of them.
  double mean_slow_s(double prior_s) const;
  // The wall clock was set: all times are then as if it had always been right.
  void shift(double seconds);
  // Ends the last attempt, whose driver is gone without having said how it ended, at `at_s`.
  void close(double at_s);
  // The furthest that any attempt came; -1: none said.
  std::int64_t best_step() const;
  // How many of the last attempts, in a row, came no further than those before them. Those that Slurm did not start or
  // that ended for storage say nothing of that.
  int idle_attempts() const;
  // How many of the last attempts, in a row, were of that kind.
  int waiting_attempts() const;
  // The last two attempts ended for this cause, and the last one came no further.
  bool ends_again_for(std::string_view cause) const;
  // The last consecutive attempts that ended of one error of the program, but for those that ended without words,
  // and the nodes on which it occurred.
  struct SameError {
    int attempts = 0;
    std::set<std::string> nodes = {};
  };
  SameError same_error() const;
};

std::string to_json(const Ledger& ledger, double now_s);
// Throws Error("driver.ledger", storage), naming `path`, for what it cannot have written.
Ledger read_ledger(std::string_view text, const std::string& path);

}  // namespace ms::driver
