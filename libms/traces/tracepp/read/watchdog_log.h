// Reads the lines that PyTorch's watchdog writes to the log of a job when a collective times out: for each rank and
// group the operation that it gave up, the newest that it issued, and the newest that it completed. One log has the
// lines of many ranks, with the prefixes of any launcher. Notes the lines of slurm/known_lines.h, too.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tracepp/read/formats.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

bool is_watchdog_log(std::string_view beginning, bool is_named);

class WatchdogLogReader final : public TraceReader {
 public:
  explicit WatchdogLogReader(RunTrace& trace) : trace_(trace), tables_(trace) {}
  std::int64_t read(TextInput& input) override;

 private:
  struct Work {
    std::string operation;  // empty: not said
    std::int64_t timeout_ms = 0, ran_ms = -1;
  };
  struct Status {
    std::int64_t at = -1, enqueued = -1, completed = -1;  // numbers of operations; -1: not said
    int place = -1;                                       // of the rank in the group; -1: not said
  };
  struct Rank {
    std::map<std::int64_t, Work> works;      // that timed out, by number
    std::map<std::string, Status> statuses;  // by group: the first, as what follows is the end of the job
    double gave_up_s = -1, seen_s = -1;      // newest timeout and status, since the year began; -1: not said
    std::size_t newest_place = 0;            // of its lines in the file
  };
  struct Noted {
    NotedLine line;
    std::string_view cause;
    std::size_t place = 0;            // in the file
    bool is_of_worker = false;        // "[rank5]:" tells the rank, not only the label of a task
    bool is_before_timeouts = false;  // of the newest attempt, behind all of the one before
  };
  void read_line(std::string_view line);
  // Forgets the ranks that gave up before an operation of this rank began, if it gave up then, too: an earlier attempt.
  void begin_attempt(int number, double now_s, double ran_s);
  void note(std::string_view line);
  void doubt_exception(int rank);  // which logged something after
  // Returns whether a line behind the timeouts of an attempt tells how that ended, or nothing tells of which it is.
  bool is_end(const Noted& noted) const;
  void add_lines();
  void add(const TextInput& input, int number, const Rank& rank);

  RunTrace& trace_;
  Tables tables_;
  std::map<int, Rank> ranks_;
  std::int64_t file_ns_ = 0;
  std::size_t count_ = 0;                                       // lines read
  std::vector<Noted> lines_;                                    // of this file
  std::set<int> gave_up_before_;                                // ranks in earlier attempts
  std::set<std::pair<int, std::string_view>> noted_;            // rank and cause
  std::map<std::pair<std::string, std::int64_t>, Work> named_;  // by group and number: as some rank names it
};

// Completes the group of all ranks: those that wrote nothing are members, too. So are those of another group that lie
// between members, if the ranks of these rise evenly; a group that shows no such gap may have further members, and
// keeps none.
void complete_watchdog_groups(RunTrace& trace);

}  // namespace ms::tracepp
