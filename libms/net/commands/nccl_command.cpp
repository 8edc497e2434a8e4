// The command that reads NCCL's logs.
#include <cerrno>
#include <fstream>

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
  return {.name = "nccl-log",
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
              "same logs have; so give it the logs of all hosts."};
}

}  // namespace ms::net
