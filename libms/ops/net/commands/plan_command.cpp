// The command that judges a fabric before the job, without a network.
#include <algorithm>
#include <array>

#include "base/print.h"
#include "net/commands/commands.h"
#include "net/commands/extension.h"
#include "net/report/plan_report.h"

namespace ms::net {
namespace {

struct AxisOption {
  const char* name;
  std::int64_t mesh::MeshConfig::*member;
};
constexpr std::array kAxes{AxisOption{"dp", &mesh::MeshConfig::dp}, AxisOption{"pp", &mesh::MeshConfig::pp},
                           AxisOption{"tp", &mesh::MeshConfig::tp}, AxisOption{"cp", &mesh::MeshConfig::cp},
                           AxisOption{"ep", &mesh::MeshConfig::ep}, AxisOption{"chunks", &mesh::MeshConfig::chunks}};

mesh::MeshConfig mesh_of(const Args& args) {
  const bool has_axes = std::ranges::any_of(kAxes, [&](const AxisOption& axis) { return args.has(axis.name); });
  if (has_axes == args.has("config")) {
    throw user_error("cli.value",
                     has_axes ? "--config and axes are two forms of one mesh: give one" : "which ranks form groups?",
                     "--config CONFIG, or axes as --dp 16 --pp 8 --tp 8");
  }
  if (!has_axes) return load_extension().mesh(args.get("config"), args.list("set"));
  if (args.has("set")) throw user_error("cli.value", "--set overrides a key of --config, which is not given");
  constexpr std::int64_t kMost = 1 << 15;
  mesh::MeshConfig mesh;
  for (const AxisOption& axis : kAxes) mesh.*axis.member = args.get_int(axis.name, 1, kMost);
  return mesh;
}

clos::Placement placement_of(const std::string& text) {
  for (const auto placement : {clos::Placement::listed, clos::Placement::pipelines, clos::Placement::random})
    if (text == to_string(placement)) return placement;
  throw user_error("cli.value", fmt::format("--placement {}: listed, pipelines or random", text));
}

int plan(const Args& args) {
  const clos::Fabric fabric = clos::load_fabric(args.get("FABRIC"), args.list("set-fabric"));
  const FabricPlan made = plan_fabric(fabric, mesh_of(args), placement_of(args.get("placement")),
                                      static_cast<int>(args.get_int("starts", 1, 10000)));
  write_out(args.has("json") ? plan_json(made) : plan_text(made));
  return 0;
}

}  // namespace

Command plan_command() {
  return {
      .name = "plan",
      .summary = "forecast the flows that collide in a training job, and what would help",
      .positionals = {{.name = "FABRIC", .doc = "The description of the fabric, ms-fabric(5)."}},
      .options = {{"config", "CONFIG", "Take the mesh from this training configuration."},
                  {.name = "set", .value = "KEY=VALUE", .doc = "Override a key of that file.", .many = true},
                  {.name = "set-fabric", .value = "KEY=VALUE", .doc = "Override a key of FABRIC.", .many = true},
                  {"dp", "N", "Data-parallel replicas.", "1"},
                  {"pp", "N", "Pipeline stages.", "1"},
                  {"tp", "N", "Tensor-parallel ranks.", "1"},
                  {"cp", "N", "Context-parallel ranks.", "1"},
                  {"ep", "N", "Expert-parallel ranks.", "1"},
                  {"chunks", "N", "Virtual stages per pipeline rank.", "1"},
                  {"placement", "listed|pipelines|random",
                   "Hosts of the ranks. listed: ranks fill the hosts in order, so that neighbors on dp are under one "
                   "leaf switch. pipelines: neighbors on pp are. random: the hosts are in random order.",
                   "listed"},
                  {"starts", "N", "Number of starts of the job, each with other queue pairs.", "32"},
                  kJson},
      .run = plan,
      .description =
          "Computes on any machine, without a network, which flows between hosts pass the same links. For each "
          "axis of the mesh it has a ring per member and host, the transfers, or the all-to-alls. NCCL opens further "
          "channels for a ring, 2 to 4 in all by default, so its rings collide as with that many queue pairs. Each "
          "queue pair gets the UDP "
          "source port that Linux gives it. Every switch on the path hashes the five-tuple. The flows then share their "
          "links max-min fair.\n\nThe first table has a row for each axis. A channel is a ring, a transfer or an "
          "all-to-all, and as slow as its slowest flow. 'slowest, median' is the rate of the slowest channel, relative "
          "to a fabric whose switches never limit it, at the median start; 'slowest, 90 %' is reached at 90 % of the "
          "starts. All channels of an axis wait for the slowest, so 50 % doubles the time of its collectives. "
          "The second table shows the slowest axis after each change, and how to make the change.\n\n"
          "Queue pairs help only if the hash reads the UDP source port. The seed of a CRC does not help: flows that "
          "collide on one of 2^n links collide with every seed.\n\nEach axis is judged by itself, with all its "
          "channels at work. A pipeline that sends rarely loses less time than its row suggests: ms-train simulate "
          "--fabric weighs the axes of a step. NCCL_IB_SPLIT_DATA_ON_QPS=0, NCCL's default, sends whole messages on "
          "the queue pairs in turn; the forecast is the same, and holds for transfers of many messages.\n\n"
          "ms-netcheck ecmp measures collisions, and ms-netcheck config --fabric checks the settings on the nodes."};
}

}  // namespace ms::net
