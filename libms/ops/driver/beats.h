// The ranks of a node as their heartbeats tell: the receiving end of watch/beat.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/handle.h"
#include "base/sysroot.h"
#include "driver/tasks.h"
#include "driver/wire.h"

namespace ms::driver {

class Beats {
 public:
  // Makes the socket in a directory of this user that only they may enter.
  Beats(const std::string& path, Sysroot root);
  ~Beats();
  Beats(const Beats&) = delete;
  Beats& operator=(const Beats&) = delete;

  // Why no heartbeat can be heard; empty: they can. Another user of the node may lay something at the path or fill the
  // disk, so it tells nothing of the node.
  const std::string& unheard() const { return unheard_; }
  // That become readable when there is something new.
  std::vector<int> fds() const;
  // Takes in what has come. Returns whether a process ended since the last call.
  bool take(double now_s);
  // The ranks of the newest attempt that was heard of, and what they did since the report before.
  Report report(double now_s);

 private:
  struct Process {
    int attempt = -1;
    int rank = -1;  // SLURM_PROCID, for beats that do not say
    std::uint64_t ticks = 0;
    double ticks_s = 0;
    UniqueFd end;  // readable once the process has ended
    bool alive = true;
  };
  struct Rank {
    int pid = 0;
    std::int64_t step = -1;
    std::string section;
    double since_s = 0;
    std::map<std::string, double> numbers;
  };
  std::string listen();  // returns unheard()
  Process* process(int pid, double now_s);
  void hear(int pid, std::string_view text, double now_s);

  std::string path_;
  Sysroot root_;
  UniqueFd fd_;  // none where heartbeats cannot be heard
  std::string unheard_;
  int attempt_ = -1;
  std::map<int, Process> processes_;
  std::map<int, Rank> ranks_;
  std::map<std::string, double> took_;
};

}  // namespace ms::driver
