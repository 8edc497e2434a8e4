// ms-diag golden: capture, compare and peers.
#include "base/file.h"
#include "base/print.h"
#include "base/text.h"
#include "health/commands/commands.h"
#include "health/commands/examine.h"
#include "health/commands/golden.h"
#include "slurm/hostlist.h"
#include "slurm/job_env.h"

namespace ms::health {
namespace {

// On the nodes of --nodelist, else here.
Measure measure_of(const Args& args) {
  return [&args](const std::vector<std::string>& nodes, const std::string& only) {
    RunRequest request{.config = args.get("config"), .level = 2, .only = only, .ssh_config = args.get("ssh-config")};
    if (args.has("nodelist")) request.nodes = nodes;
    return examine(request);
  };
}

}  // namespace

int golden_command(const Args& args) {
  const std::string action = args.get("ACTION"), file = args.get("FILE");
  if (action != "capture" && action != "compare" && action != "peers") {
    throw user_error("golden.action", fmt::format("ACTION: expected capture, compare or peers, got '{}'", action));
  }
  if ((action == "peers") != file.empty()) {
    throw user_error("golden.file", action == "peers" ? "peers reads no FILE: the nodes are compared with each other"
                                                      : action + " needs a FILE");
  }
  const std::vector<std::string> nodes = args.has("nodelist") ? slurm::expand_hostlist_or_throw(args.get("nodelist"))
                                                              : std::vector<std::string>{slurm::this_node()};
  if (nodes.empty()) throw user_error("check.nodes", "the list of nodes is empty");
  const Measure measure = measure_of(args);
  if (action == "capture") {
    const Golden golden = learn_golden(measure(nodes, args.get("only")));
    write_file_atomic(file, golden_json(golden));
    print_out("{}: {} of {}\n", file, plural(golden.rates.size(), "rate"), plural(golden.nodes.size(), "good node"));
    return 0;
  }
  const auto show = [&](const GoldenComparison& comparison) {
    write_out(args.has("json") ? comparison_json(comparison) : comparison_text(comparison));
    return comparison.nagios_status();
  };
  if (action == "peers") return show(compare_peers(nodes, args.get("only"), measure));
  const Golden golden = golden_from_json(read_file(file, Blame::user), file);
  if (golden.rates.empty()) throw user_error("golden.format", fmt::format("{}: there is no rate in it", file));
  return show(compare_golden(golden, nodes, measure));
}

}  // namespace ms::health
