// The rows of the active checks. They load the node, so they run as the user in a job step, or by hand, on a node that
// is otherwise idle; their functions are in the room diag and are found by code (extension.h). Deadlines add up to 115
// s.
#include "health/checks.h"

namespace ms::health {
namespace {

constexpr std::string_view kLooksSlow =
    "Run it again while nothing else runs on the node; if it stays slow, compare the BIOS's power and memory settings "
    "and the installed memory with those of a node that is not.";

}  // namespace

const std::vector<Check>& active_check_rows() {
  static const std::vector<Check> kRows = {
      {.code = "perf.memory",
       .level = 2,
       .lane = Lane::active,
       .summary = "memory bandwidth below what is expected",
       .needs = "free memory of twelve times the last cache",
       .deadline_s = 15,
       .cost = Cost::seconds,
       .explain =
           "The triad of STREAM, a = b + s * c, with a thread on each core and arrays that are four times as large as "
           "all last-level caches together, or less where memory is short. The best of many passes counts, at 24 bytes "
           "an element, and afterwards every element is verified.\n\nA missing or slow memory module, a channel that "
           "was not trained, or a wrong NUMA setting in the BIOS shows here long before anything fails. The number is "
           "judged against active.memory_gbps of ms-diag.toml(5), and only where the node's cores are all ours; "
           "without that key it is only shown. Several processes on a node measure at the same time and share what is "
           "expected.",
       .remedy = kLooksSlow},
      {.code = "perf.gemm",
       .level = 2,
       .lane = Lane::active,
       .summary = "matrix products slower than expected",
       .deadline_s = 20,
       .cost = Cost::seconds,
       .explain =
           "Square products in fp32 and bf16 with the same kernels that train, on all cores, for a second and a half "
           "each. Where the processor has no bf16 instructions, products of bf16 numbers are computed in fp32 and the "
           "note says so.\n\nCores that are throttled by heat or power, or capped by the BIOS, show here. Judged "
           "against active.gemm_gflops_fp32 and active.gemm_gflops_bf16. It loads the CPU, also on nodes with GPUs.",
       .remedy = "Look at temperatures, fans and power limits of the node, and at what else runs on it."},
      {.code = "perf.bits",
       .level = 2,
       .lane = Lane::active,
       .summary = "a core that computes other bits than the rest, or than before",
       .deadline_s = 20,
       .cost = Cost::seconds,
       .explain =
           "A thread bound to each core computes the same product again and again for some seconds, in fp32 and bf16, "
           "all cores at once, and every result is compared bit for bit, by a hash, with what most of them "
           "computed.\n\nA core that computes something else now and then corrupts training silently: the loss goes "
           "wrong and "
           "nothing is logged anywhere. There is no normal number of differences but zero, so one is critical.",
       .remedy = "Take the node out of service and have the processor of that core replaced."},
      {.code = "perf.nic",
       .level = 2,
       .lane = Lane::active,
       .summary = "the node's own TCP stack slower than expected with a network interface's address",
       .needs = "a network interface with an address",
       .deadline_s = 15,
       .cost = Cost::seconds,
       .explain =
           "One TCP connection from the node to itself for each interface that has an address and is up, for at most "
           "a second each.\n\nLinux knows its own addresses and never sends such data through the interface: this "
           "measures the node's TCP stack, its firewall rules and its memory, not the wire. It finds a node whose "
           "kernel is busy with something else, or whose rules drop its own traffic. The wire itself is measured "
           "between nodes, by perf.reduce. Judged against active.nic_gbps.",
       .remedy = "Compare firewall rules, kernel settings and load with a node that is not slow."},
      {.code = "perf.a2a",
       .level = 2,
       .lane = Lane::active,
       .summary = "all-to-all inside the node slower than expected, or wrong",
       .deadline_s = 15,
       .cost = Cost::seconds,
       .explain =
           "Ranks that are threads of one process, at most sixteen, exchange blocks pairwise until everybody has one "
           "from everybody, over and over for a second. Every word that arrives is verified.\n\nThe number is what all "
           "ranks send together. Slow is what perf.memory is slow for, or cores that are busy; wrong is never normal. "
           "Judged against active.a2a_gbps.",
       .remedy = kLooksSlow},
      {.code = "perf.reduce",
       .level = 2,
       .lane = Lane::active,
       .summary = "all-reduce with the neighbours slower than expected, or wrong",
       .needs = "several processes, started by srun or mpirun",
       .deadline_s = 30,
       .blame = Blame::fabric,
       .cost = Cost::seconds,
       .explain =
           "All processes that were started together, as in srun -N4 --ntasks-per-node=1 --mpi=pmix ms-diag run "
           "--level 2, add up 16 MiB again and again for some seconds. The inputs are crafted so that the sum is known "
           "exactly, and every element is verified.\n\nThe number is the bus bandwidth: bytes a second times 2 (n-1) / "
           "n, which is what a link carries and so does not depend on the number n of processes. All see the same "
           "number, so a slow one blames the fabric between them: repeat it with halves of the nodes to find whose it "
           "is. Judged against active.reduce_gbps.",
       .remedy = "Repeat it with halves of the nodes until one node is left that makes a pair slow."},
  };
  return kRows;
}

}  // namespace ms::health
