// Tells processes of earlier attempts of a job from those of the last one, where one log has several: a process that
// opens a communicator on a GPU took the place of the one there that had written its last line before. With a process,
// all with which it shares a communicator are of the earlier attempt. Bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ms::net {

// Processes that one attempt joined by their communicators.
struct NcclAttempt {
  std::size_t processes = 0;
  std::vector<std::string> hosts;  // in order
};

class NcclAttempts {
 public:
  static constexpr std::size_t kMostProcesses = std::size_t{1} << 20;  // of further ones no attempt is told

  static constexpr std::size_t kMostOpened = std::size_t{1} << 22;  // communicators, likewise

  // Takes a line of a log, in order: what `process` ("host:process") wrote. All logs come before is_earlier().
  void see(std::string_view host, std::string_view process, std::string_view text);
  // Begins the next log: nothing tells whether its lines are newer.
  void begin_log() { ++log_; }
  // Returns whether a line is of an earlier attempt; the lines come again in the same order.
  bool is_earlier(std::string_view process, std::string_view text);
  // In order of their first lines.
  const std::vector<NcclAttempt>& earlier() const { return earlier_; }

 private:
  struct Life {  // a process may have the number of an earlier one, as in containers
    std::string host;
    std::uint64_t log = 0, first = 0, last = 0;
    std::size_t parent = 0;  // of the same attempt, in lives_; its own index: none
    bool is_earlier = false, has_gpu = false;
  };
  struct Lives {
    std::vector<std::size_t> lives;  // in lives_
    std::size_t at = 0;
    bool has_begun = false;
  };
  static bool begins_new(Lives& of, std::string_view text);
  std::size_t root_of(std::size_t life);
  void finish();

  std::vector<Life> lives_;
  std::map<std::string, Lives, std::less<>> processes_;
  std::map<std::string, std::size_t, std::less<>> comms_;                          // a life, by the id
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> slots_;  // lives by host and GPU
  std::vector<NcclAttempt> earlier_;
  std::uint64_t log_ = 0, line_ = 0;
  std::size_t opened_ = 0;
  bool is_finished_ = false;
};

}  // namespace ms::net
