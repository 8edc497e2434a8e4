// The commands that read what NCCL and its plugins wrote.
#include <cerrno>
#include <fstream>

#include "base/file.h"
#include "base/print.h"
#include "net/commands/commands.h"
#include "net/report/inspector_report.h"
#include "net/report/nccl_report.h"
#include "net/report/report.h"

namespace ms::net {
namespace {

// Reads files with `read`, which is called with a stream and its path; returns the sum of what it returns.
template <class Read>
std::int64_t read_all(const std::vector<std::string>& paths, const Read& read) {
  std::int64_t count = 0;
  for (const std::string& path : paths) {
    const MappedFile whole(path, Blame::user);  // throws of a pipe, which would be waited for, and of endless devices
    errno = 0;
    std::ifstream in(path, std::ios::binary);
    if (in) count += read(in, path);
    if (!in.eof())
      throw user_error("file.read", fmt::format("cannot read {}: {}", path, errno_text(errno == 0 ? EIO : errno)));
  }
  return count;
}

int inspector(const Args& args) {
  InspectorLog log;
  if (read_all(args.list("FILE"), [&](std::istream& in, const std::string&) { return log.read(in); }) == 0) {
    throw user_error("net.log", "these files contain no records of NCCL's Inspector",
                     "set NCCL_PROFILER_PLUGIN to libnccl-profiler-inspector.so, NCCL_INSPECTOR_ENABLE=1 and "
                     "NCCL_INSPECTOR_DUMP_DIR; leave NCCL_INSPECTOR_PROM_DUMP unset");
  }
  const InspectorJudged judged = judge_inspector(log);
  write_out(args.has("json") ? inspector_json(log, judged) : inspector_text(log, judged));
  return worst_status(judged.judged.findings);
}

int nccl_log(const Args& args) {
  NcclLog log;
  read_all(args.list("FILE"), [&](std::istream& in, const std::string&) { return log.find_attempts(in); });
  const std::int64_t lines =
      read_all(args.list("FILE"), [&](std::istream& in, const std::string& path) { return log.read(in, path); });
  if (lines == 0) {
    throw user_error("net.log", "these files contain no NCCL log lines",
                     "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,P2P,SHM,ENV; NCCL then logs to standard "
                     "output or to NCCL_DEBUG_FILE=nccl.%h.%p");
  }
  const NcclJudged judged = judge_nccl(log);
  write_out(args.has("json") ? nccl_json(log, judged) : nccl_text(log, judged));
  return worst_status(judged.findings);
}

}  // namespace

Command inspector_command() {
  return {
      .name = "inspector",
      .summary = "read NCCL's Inspector: processes that come last, slow groups and pairs",
      .positionals = {{.name = "FILE",
                       .doc = "Files that NCCL's Inspector plugin wrote as JSON: HOST-pidPID.log of all processes.",
                       .many = true}},
      .options = {kJson},
      .run = inspector,
      .description =
          "Prints the collectives of a job by operation, size and shape of the group, those that took the most time "
          "first: the median bus bandwidth of the groups, that of the slowest group, and the share of the time that "
          "ranks wait for the last one. In one collective the rank with the shortest time came last, and its bus "
          "bandwidth is that of the transfer alone. A process that comes last to most collectives is reported, unless "
          "it "
          "waits as long for another process itself. Groups are compared with groups of the same shape, operation and "
          "size, of which there must be three, and pairs of hosts with other pairs. The time within a host is not "
          "compared "
          "with that between hosts.\n\nRecord with NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so, "
          "NCCL_INSPECTOR_ENABLE=1, NCCL_INSPECTOR_DUMP_DIR=DIR and "
          "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=500000. An operation is recorded when it ends, so a hang "
          "leaves "
          "no record: use ms-tracepp hang."};
}

Command nccl_log_command() {
  return {
      .name = "nccl-log",
      .summary = "read NCCL's logs: transports used, and fallbacks to slower ones",
      .positionals = {{.name = "FILE",
                       .doc = "Logs written with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,P2P,SHM,ENV: "
                              "files of NCCL_DEBUG_FILE, or a job's output. Files of NCCL_TOPO_DUMP_FILE and "
                              "NCCL_GRAPH_DUMP_FILE are also read, each as a separate host.",
                       .many = true}},
      .options = {kJson},
      .run = nccl_log,
      .description =
          "Prints for each host the network and the adapters that NCCL found, the channels of the largest group, the "
          "rings that the host found by itself, and the number of connections per transport. NCCL uses the minimum "
          "number of rings over all hosts. It reports hosts that fell back to sockets despite adapters, to host memory "
          "despite NVLink, to transfers without GPUDirect RDMA, to fewer adapters or to fewer rings than other hosts "
          "of a "
          "group, or that announce a loopback address. With NCCL_DEBUG_SUBSYS=COLL it also compares the collectives "
          "that "
          "the processes of a communicator called, and prints the first one that differs. If the job began several "
          "times in "
          "one log, only the last attempt is judged.\n\nHosts are compared with "
          "the other hosts in the same logs, so pass the logs of all hosts, and "
          "only hosts of the same type. A host whose log lacks a topic is not judged on it. Rings are compared "
          "within a communicator, identified by its id or, after a split, by parent, count and color. The "
          "communicator is unknown in dumped graphs, and if the log lacks the start of the parent. Rings are then "
          "not compared. Transfers between two GPUs through host memory are a warning only if the printed topology "
          "and the lines of both processes show an NVLink between them. A fault common to all hosts is detected "
          "only if a host reports it itself, so NCCL may be slow even without findings."};
}

}  // namespace ms::net
