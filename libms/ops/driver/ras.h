// NCCL's RAS (since NCCL 2.24): a thread in each process of a NCCL program knows the state of all of them, and one
// process of each node reports it at a port of that node. Its answer is untrusted text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/sysroot.h"
#include "driver/tasks.h"
#include "link/channel.h"

namespace ms::driver {

// Returns where one of the tasks listens for clients of RAS: at the port that NCCL_RAS_ADDR names in its environment,
// else at 28028. A port that another process holds does not count: of several jobs on a node, RAS answers for one.
std::optional<link::Address> ras_address(const Sysroot& root, const std::vector<Task>& tasks);

struct RasAnswer {
  std::string report;   // JSON since NCCL 2.28, else text, without control characters; empty: none
  std::string problem;  // why there is none
};
// Asks for the state of all ranks, with an answer of 64 MiB at most.
RasAnswer ask_ras(const link::Address& address, link::Deadline deadline);

struct RasAnswers {
  std::vector<std::string> reports;
  std::string problem;  // why there are fewer than two, where RAS listens; empty where no task listens
};
// Asks the RAS of these tasks twice, as counts of one moment differ in a run that is well, too. Takes some seconds.
RasAnswers ask_ras_twice(const Sysroot& root, const std::vector<Task>& tasks);

}  // namespace ms::driver
