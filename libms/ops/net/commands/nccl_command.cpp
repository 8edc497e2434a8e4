// The command that reads NCCL's logs.
#include <cerrno>
#include <fstream>

#include "base/file.h"
#include "base/print.h"
#include "net/commands/commands.h"
#include "net/report/nccl_report.h"
#include "net/report/report.h"

namespace ms::net {
namespace {

int nccl_log(const Args& args) {
  NcclLog log;
  std::int64_t lines = 0;
  for (const std::string& path : args.list("FILE")) {
    const MappedFile whole(path, Blame::user);  // throws of a pipe, which would be waited for, and of endless devices
    errno = 0;
    std::ifstream in(path, std::ios::binary);
    if (in) lines += log.read(in, path);
    if (!in.eof())
      throw user_error("file.read", fmt::format("cannot read {}: {}", path, errno_text(errno == 0 ? EIO : errno)));
  }
  if (lines == 0) {
    throw user_error(
        "net.log", "no line of these files is one of NCCL's",
        "NCCL writes with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,P2P,SHM,ENV, to standard output "
        "or to NCCL_DEBUG_FILE=nccl.%h.%p");
  }
  const NcclJudged judged = judge_nccl(log);
  write_out(args.has("json") ? nccl_json(log, judged) : nccl_text(log, judged));
  return worst_status(judged.findings);
}

}  // namespace

Command nccl_log_command() {
  return {
      .name = "nccl-log",
      .summary = "which ways NCCL took, by its own logs, and where it fell back to slower ones",
      .positionals = {{.name = "FILE",
                       .doc = "What processes wrote with NCCL_DEBUG=INFO and "
                              "NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,P2P,SHM,ENV: files of NCCL_DEBUG_FILE, or a job's "
                              "output; also files of NCCL_TOPO_DUMP_FILE and NCCL_GRAPH_DUMP_FILE, each as a host "
                              "of its own.",
                       .many = true}},
      .options = {kJson},
      .run = nccl_log,
      .description =
          "Prints for every host the network and the adapters that NCCL found, the channels of the largest group, "
          "the rings that the host alone would have had, and how many connections go over what. Names hosts that "
          "fell back: to sockets beside adapters, to the host's memory beside NVLinks, to messages without "
          "GPUDirect RDMA, to fewer rings than the others of a group. What is normal is what other hosts of the "
          "same logs have; so give it the logs of all hosts. Hosts are taken to be of one kind: where they are not, "
          "what is said of a host beside others says no more than that they differ. "
          "A host that writes nothing of a matter is neither good nor bad in it. Rings are compared within one "
          "group: by its id or, of groups that were split off, by parent, count and color; where the log does not "
          "have the parent's beginning, and of dumped graphs, the group is not known, and nothing is compared. "
          "That two GPUs go through the host's memory is a warning only where the printed topology, and the lines "
          "of both processes, tell that NVLinks join these two. No log tells of a fault that all hosts share, "
          "except for what a host says of itself: that nothing is found does not mean that NCCL is as fast as it "
          "can be."};
}

}  // namespace ms::net
