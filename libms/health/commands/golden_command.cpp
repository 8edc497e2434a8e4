// ms-diag golden: capture and compare.
#include "base/file.h"
#include "base/print.h"
#include "base/text.h"
#include "health/commands/commands.h"
#include "health/commands/examine.h"
#include "health/commands/golden.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

constexpr double kActive_s = 150;  // the deadlines of the active checks add up to 115 s

// On the nodes of --nodelist, else here.
Measure measure_of(const Args& args) {
  return [&args](const std::vector<std::string>& nodes, const std::string& only) {
    RunRequest request{.config = args.get("config"),
                       .level = 2,
                       .only = only,
                       .deadline_s = kActive_s,
                       .ssh_config = args.get("ssh-config")};
    if (args.has("nodelist")) request.nodes = nodes;
    return examine(request);
  };
}

}  // namespace

int golden_command(const Args& args) {
  const std::string action = args.get("ACTION"), file = args.get("FILE");
  if (action != "capture" && action != "compare") {
    throw user_error("golden.action", fmt::format("ACTION: expected capture or compare, got '{}'", action));
  }
  const std::vector<std::string> nodes = args.has("nodelist") ? slurm::expand_hostlist_or_throw(args.get("nodelist"))
                                                              : std::vector<std::string>{this_node()};
  if (nodes.empty()) throw user_error("check.nodes", "the list of nodes is empty");
  const Measure measure = measure_of(args);
  if (action == "capture") {
    const Golden golden = learn_golden(measure(nodes, args.get("only")));
    write_file_atomic(file, golden_json(golden));
    print_out("{}: {} of {}\n", file, plural(golden.rates.size(), "rate"), plural(golden.nodes.size(), "good node"));
    return 0;
  }
  const Golden golden = golden_from_json(read_file(file, Blame::user), file);
  if (golden.rates.empty()) throw user_error("golden.format", fmt::format("{}: there is no rate in it", file));
  const GoldenComparison comparison = compare_golden(golden, nodes, measure);
  write_out(args.has("json") ? comparison_json(comparison) : comparison_text(comparison));
  return comparison.nagios_status();
}

}  // namespace ms::health
