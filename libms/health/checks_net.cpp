// Links of this node, as sysfs tells: net.link, net.flaps, net.errors. A link is a network interface ("eth0") or a port
// of an InfiniBand or RoCE adapter ("mlx5_0/1"). Without expectations only links that are clearly meant to be used are
// judged, and only warned about: a port without a cable looks like one whose cable is broken.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "health/checks.h"
#include "health/growth.h"
#include "health/scan.h"

namespace ms::health {
namespace {

constexpr double kMbpsPerGbps = 1000;

struct Link {
  std::string name;
  bool is_port = false;  // of an RDMA adapter
  std::string directory;
};

Link link_named(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return {name, false, "/sys/class/net/" + name};
  return {name, true, fmt::format("/sys/class/infiniband/{}/ports/{}", name.substr(0, slash), name.substr(slash + 1))};
}

std::vector<Link> ports(const Sysroot& root) {
  std::vector<Link> found;
  for (const std::string& device : root.list("/sys/class/infiniband")) {
    for (const std::string& port : root.list(fmt::format("/sys/class/infiniband/{}/ports", device))) {
      found.push_back(link_named(device + "/" + port));
    }
  }
  return found;
}

// Interfaces with hardware behind them.
std::vector<Link> interfaces(const Sysroot& root) {
  std::vector<Link> found;
  for (const std::string& name : root.list("/sys/class/net")) {
    if (root.exists(fmt::format("/sys/class/net/{}/device", name))) found.push_back(link_named(name));
  }
  return found;
}

// Names with other characters are no interface, and "../" is nobody's link.
bool is_link_name(std::string_view name) {
  Scan scan(name);
  if (scan.name().empty() || name.starts_with('.')) return false;
  return scan.at_end() || (scan.literal("/") && scan.number() && scan.at_end());
}

// Every link whose counters are watched, once.
std::vector<Link> watched(const Evidence& evidence) {
  std::vector<Link> all = interfaces(evidence.root());
  for (Link& port : ports(evidence.root())) all.push_back(std::move(port));
  for (const std::string& name : evidence.policy().expect.links) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const Link& link) { return link.name == name; });
    if (!known && is_link_name(name) && evidence.root().exists(link_named(name).directory))
      all.push_back(link_named(name));
  }
  return all;
}

// "4: ACTIVE" -> 4; 0: it is not said.
std::uint64_t state_number(const Sysroot& root, const std::string& file) {
  const auto text = root.read(file, 256);
  return text ? Scan(*text).number().value_or(0) : 0;
}
constexpr std::uint64_t kActive = 4;  // of state: 1 down, 2 initialising, 3 armed
// Of phys_state: 1 sleep, 2 polling, and then 5 link up, 6 recovery, 7 test.
constexpr std::uint64_t kPhysDisabled = 3;
constexpr std::uint64_t kPhysTraining = 4;  // from here on there is a signal from the other end
constexpr std::uint64_t kPhysLinkUp = 5;

std::string text_of(const Sysroot& root, const std::string& file) {
  const auto text = root.read(file, 256);
  return text ? printable(trim(*text)) : "unknown";
}

struct LinkState {
  bool up = false;
  bool switched_off = false;  // by whoever administers it
  std::string said;
};

LinkState state_of(const Sysroot& root, const Link& link) {
  if (link.is_port) {
    const std::uint64_t physical = state_number(root, link.directory + "/phys_state");
    return {.up = state_number(root, link.directory + "/state") == kActive && physical == kPhysLinkUp,
            .switched_off = physical == kPhysDisabled,
            .said = fmt::format("state {}, physical state {}", text_of(root, link.directory + "/state"),
                                text_of(root, link.directory + "/phys_state"))};
  }
  const auto carrier = root.read_int(link.directory + "/carrier");  // EINVAL while the interface is switched off
  const std::string operstate = text_of(root, link.directory + "/operstate");
  return {.up = carrier == 1 && (operstate == "up" || operstate == "unknown"),
          .switched_off = !carrier,
          .said = carrier ? fmt::format("operstate {}, carrier {}", operstate, *carrier) : "it is switched off"};
}

// Gb/s; nullopt: it is not said (a link that is down, a virtual one).
std::optional<double> rate_of(const Sysroot& root, const Link& link) {
  if (!link.is_port) {
    const auto mbps = root.read_int(link.directory + "/speed");
    return mbps && *mbps > 0 ? std::optional(static_cast<double>(*mbps) / kMbpsPerGbps) : std::nullopt;
  }
  const auto text = root.read(link.directory + "/rate", 256);  // "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
  if (!text) return std::nullopt;
  Scan scan(*text);
  const auto whole = scan.number();
  const auto tenth = scan.literal(".") ? scan.number() : std::optional<std::uint64_t>(0);
  if (!whole || !tenth || *tenth > 9 || !scan.literal(" Gb/sec")) return std::nullopt;
  return static_cast<double>(*whole) + static_cast<double>(*tenth) / 10;
}

std::vector<Finding> judge_expected(const Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const double least_gbps = evidence.policy().expect.link_gbps;
  std::vector<Finding> findings;
  for (const std::string& name : evidence.policy().expect.links) {
    const Link link = link_named(name);
    const auto add = [&](std::string message) -> Finding& {
      findings.push_back({.severity = Severity::critical, .entity = name, .message = std::move(message)});
      return findings.back();
    };
    if (!is_link_name(name) || !root.exists(link.directory)) {
      add("is not there");
      continue;
    }
    const LinkState state = state_of(root, link);
    if (!state.up) {
      add(fmt::format("is down: {}", state.said));
      continue;
    }
    const auto gbps = rate_of(root, link);
    if (least_gbps <= 0 || !gbps || *gbps >= least_gbps) continue;
    Finding& slow = add(fmt::format("runs at {:g} of {:g} Gb/s", *gbps, least_gbps));
    slow.measured = *gbps;
    slow.limit = least_gbps;
    slow.unit = "Gb/s";
  }
  return findings;
}

// A port whose cable carries a signal must be active; a link that was up within a day and is not was not unused.
std::vector<Finding> judge_found(const Evidence& evidence, const std::vector<Link>& links, Counters& keep) {
  const Sysroot& root = evidence.root();
  std::vector<Finding> findings;
  for (const Link& link : links) {
    const LinkState state = state_of(root, link);
    const std::string name = "net.link up " + link.name;
    if (state.up) {
      keep[name] = {1, evidence.now_wall_s()};
      continue;
    }
    if (state.switched_off) continue;
    const std::uint64_t physical = link.is_port ? state_number(root, link.directory + "/phys_state") : 0;
    const auto before = evidence.before(name);
    const bool was_up = before && evidence.now_wall_s() - before->wall_s < kDay_s;
    if (was_up) keep[name] = *before;
    if (physical < kPhysTraining && !was_up) continue;  // polling: without a cable, or with a broken one
    findings.push_back(
        {.severity = Severity::warning,
         .entity = link.name,
         .message = fmt::format("{}: {}", was_up ? "was up and is not" : "is connected but not active", state.said)});
  }
  return findings;
}

struct ErrorCounter {
  std::string_view file;
  std::string_view what;
};

// Damage on the wire or in the adapter; nothing that load or a peer's program can cause.
constexpr ErrorCounter kPortErrors[] = {
    {"counters/symbol_error", "symbol errors"},
    {"counters/link_error_recovery", "link recoveries"},
    {"counters/local_link_integrity_errors", "link integrity errors"},
    {"counters/port_rcv_errors", "packets received damaged"},
    {"counters/excessive_buffer_overrun_errors", "buffer overruns"},
};
constexpr ErrorCounter kInterfaceErrors[] = {
    {"statistics/rx_crc_errors", "frames with a wrong checksum"},
    {"statistics/rx_errors", "frames received damaged"},
    {"statistics/tx_errors", "frames that could not be sent"},
};

}  // namespace

Result check_net_link(Evidence& evidence) {
  if (!evidence.policy().expect.links.empty()) {
    return judged(judge_expected(evidence), plural(evidence.policy().expect.links.size(), "link") + " up");
  }
  const std::vector<Link> links = watched(evidence);
  if (links.empty()) return skipped("expect.links is empty, and there is no physical interface and no RDMA port here");
  Counters keep;
  std::vector<Finding> findings = judge_found(evidence, links, keep);
  Result result = judged(std::move(findings), fmt::format("{} of {} up", keep.size(), plural(links.size(), "link")));
  result.counters = std::move(keep);
  return result;
}

Result check_net_flaps(Evidence& evidence) {
  const double limit = static_cast<double>(evidence.policy().limits.link_flaps_per_day);
  std::vector<Finding> findings;
  Counters keep;
  for (const Link& link : watched(evidence)) {
    const auto downs =
        evidence.root().read_int(link.directory + (link.is_port ? "/counters/link_downed" : "/carrier_down_count"));
    if (!downs) continue;
    const auto per_day =
        growth_per_window(evidence, "net.flaps " + link.name, static_cast<double>(*downs), kDay_s, keep);
    if (!per_day || *per_day <= limit) continue;
    findings.push_back({.severity = Severity::warning,
                        .entity = link.name,
                        .message = fmt::format("went down {:.0f} times in a day", *per_day),
                        .measured = *per_day,
                        .limit = limit,
                        .unit = "times/d"});
  }
  if (keep.empty()) return skipped("no link here counts how often it went down");
  Result result = judged(std::move(findings), plural(keep.size(), "link"));
  result.counters = std::move(keep);
  return result;
}

Result check_net_errors(Evidence& evidence) {
  const double limit = evidence.policy().limits.link_errors_per_hour;
  std::vector<Finding> findings;
  Counters keep;
  const auto look = [&](const Link& link, const ErrorCounter& counter) {
    const auto value = evidence.root().read_int(fmt::format("{}/{}", link.directory, counter.file));
    if (!value) return;  // restricted functions answer EINVAL
    const auto per_hour = growth_per_window(evidence, fmt::format("net.errors {} {}", link.name, counter.file),
                                            static_cast<double>(*value), kHour_s, keep);
    if (!per_hour || *per_hour <= limit) return;
    findings.push_back({.severity = Severity::warning,
                        .entity = link.name,
                        .message = fmt::format("{:.0f} {} an hour", *per_hour, counter.what),
                        .measured = *per_hour,
                        .limit = limit,
                        .unit = "errors/h"});
  };
  for (const Link& link : watched(evidence)) {
    if (link.is_port) {
      for (const ErrorCounter& counter : kPortErrors) look(link, counter);
    } else {
      for (const ErrorCounter& counter : kInterfaceErrors) look(link, counter);
    }
  }
  if (keep.empty()) return skipped("no link here has error counters");
  Result result = judged(std::move(findings), plural(keep.size(), "counter"));
  result.counters = std::move(keep);
  return result;
}

}  // namespace ms::health
