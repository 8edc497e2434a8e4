#include "net/report/nccl_report.h"

#include <fmt/ranges.h>

#include <map>

#include "base/json.h"
#include "base/text.h"
#include "net/report/report.h"
#include "slurm/hostlist.h"

namespace ms::net {
namespace {

std::string or_dash(std::string text) { return text.empty() ? "-" : std::move(text); }

std::vector<std::string> cells_of(const NcclHost& host) {
  std::string ways;
  for (const auto& [way, connections] : host.ways)
    ways += fmt::format("{}{} {}", ways.empty() ? "" : ", ", connections, way);
  const NcclRings* rings = host.dumped_rings ? &*host.dumped_rings : nullptr;  // of any communicator, the most
  for (const auto& [comm, of] : host.rings)
    if (rings == nullptr || of.channels > rings->channels) rings = &of;
  return {std::to_string(host.processes.size()),
          or_dash(fmt::format("{}", fmt::join(host.networks, ", "))),
          std::to_string(host.adapters.size()),
          host.channels > 0 ? std::to_string(host.channels) : "-",
          rings == nullptr ? "-" : fmt::format("{} {}/{}", rings->channels, rings->intra, rings->inter),
          or_dash(ways)};
}

}  // namespace

std::string nccl_text(const NcclLog& log, const NcclJudged& judged) {
  std::map<std::vector<std::string>, std::vector<std::string>> alike;
  for (const auto& [name, host] : log.hosts()) alike[cells_of(host)].push_back(name);
  TextTable table(columns("HOSTS|PROCESSES>|NETWORK|ADAPTERS>|CHANNELS>|RINGS FOUND|CONNECTIONS"));
  for (const auto& [cells, hosts] : alike) {
    std::vector<std::string> row{slurm::fold_hostlist(hosts)};
    row.insert(row.end(), cells.begin(), cells.end());
    table.row(std::move(row));
  }
  return table.str() + findings_text(judged.findings, plural(log.hosts().size(), "host"), judged.not_run);
}

std::string nccl_json(const NcclLog& log, const NcclJudged& judged) {
  ms::Json hosts = ms::Json::object();
  const auto rings_json = [](const NcclRings& of) {
    return ms::Json{{"channels", of.channels}, {"intra", of.intra}, {"inter", of.inter}};
  };
  for (const auto& [name, host] : log.hosts()) {
    ms::Json rings = ms::Json::object();
    for (const auto& [comm, of] : host.rings) rings[comm] = rings_json(of);
    if (host.dumped_rings) rings["dumped"] = rings_json(*host.dumped_rings);
    hosts[name] = {{"processes", host.processes.size()}, {"networks", host.networks}, {"adapters", host.adapters},
                   {"channels", host.channels},          {"ranks", host.ranks},       {"rings_found", rings},
                   {"connections", host.ways},           {"received", host.receives}, {"nvlink", host.has_nvlink},
                   {"settings", host.settings},          {"warnings", host.warnings}};
  }
  ms::Json json = ms::Json::parse(findings_json("nccl-log", judged.findings, judged.not_run));
  json["hosts"] = std::move(hosts);
  return json.dump(2) + "\n";
}

}  // namespace ms::net
