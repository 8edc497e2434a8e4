#include "driver/netcheck.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kNetworkCheck_s = 120, kSureFault = 0.6;
constexpr const char* kStream = "16MiB";

bool explains_a_hang(const std::string& symptom) { return symptom == "loss" || symptom == "size" || symptom == "flap"; }

std::string output_of(const std::string& dir) { return dir + "/check-network.json"; }

}  // namespace

std::optional<NetworkFound> network_found(std::string_view output) {
  const std::optional<Json> json = document_in(output);
  if (!json) return std::nullopt;
  try {
    NetworkFound found;
    for (const Json& pair : json->at("pairs")) {
      if (pair.contains("error")) continue;
      for (const char* end : {"a", "b"}) found.clear.insert(pair.get<std::string>(end));
    }
    for (const Json& fault : json->at("verdict")) {
      const auto nodes = fault.get<std::vector<std::string>>("nodes");
      const auto symptoms = fault.get<std::vector<std::string>>("symptoms");
      // A run does not hang because a node is slow or late, which a busy processor is, too. Silence may be that of a
      // step which did not start; the agents say better who is gone.
      const bool explains = std::ranges::any_of(symptoms, explains_a_hang);
      if (!explains && std::ranges::find(symptoms, "silent") == symptoms.end()) continue;
      for (const std::string& node : nodes) found.clear.erase(node);
      if (!explains || nodes.size() != 1 || fault.get<double>("confidence") < kSureFault) continue;
      found.faults.push_back({.node = nodes[0], .why = plain_text(fault.get<std::string>("evidence"), 200)});
    }
    return found;
  } catch (const JsonError&) { return std::nullopt; }
}

void NetworkCheck::begin(const std::vector<std::string>& nodes, double max_gbps, double now_s) {
  if (busy() || nodes.size() < kLeastNodes) return;
  const std::string errors = dir_ + "/check-network.log";
  for (const std::string& earlier : {output_of(dir_), errors}) unlink(earlier.c_str());
  // While a run trains, nothing waits for the check, and agents of a busy node may come late.
  const char* const wait_s = max_gbps > 0 ? "30" : "10";
  try {
    command_ =
        LongCommand::start({program_, "locate", "--nodes", slurm::fold_hostlist(nodes), "--json", "--wait", wait_s,
                            "--pings", "50", "--bytes", kStream, "--max-rate", fmt::format("{}", max_gbps)},
                           environment_with({}), output_of(dir_), dir_ + "/check-network.status", errors);
    nodes_ = nodes;
    began_s_ = now_s;
    log::info("driver", "the network of {} is looked at: ms-netcheck locate, over TCP, {} a stream at most{}",
              slurm::fold_hostlist(nodes), kStream, max_gbps > 0 ? fmt::format(", {} Gbit/s", max_gbps) : "");
  } catch (const Error& error) { log::warn("driver", "the network is not looked at: {}", error.message()); }
}

bool NetworkCheck::looks_at(const std::string& node) const {
  return busy() && std::ranges::find(nodes_, node) != nodes_.end();
}

std::optional<NetworkCheck::Result> NetworkCheck::take(double now_s) {
  if (!command_) return std::nullopt;
  const bool ended = command_->ended();
  if (!ended && now_s - began_s_ < kNetworkCheck_s) return std::nullopt;
  if (!ended) command_->signal(SIGKILL);
  command_.reset();
  return Result{.nodes = nodes_,
                .found = ended && access(output_of(dir_).c_str(), R_OK) == 0 ? network_found(read_file(output_of(dir_)))
                                                                             : std::nullopt};
}

void NetworkCheck::stop() {
  if (command_) command_->signal(SIGKILL);
  command_.reset();
}

}  // namespace ms::driver
