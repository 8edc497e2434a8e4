// The check net.link (check.h): links that are down, missing or slow. Without expectations only links that are clearly
// meant to be used are judged, and only warned about: a port without a cable looks like one whose cable is broken.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/links.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kMbpsPerGbps = 1000;

// "4: ACTIVE" -> 4; 0: it is not said.
std::uint64_t state_number(const Sysroot& root, const std::string& file) {
  const auto text = root.read(file, 256);
  return text ? Scan(*text).number().value_or(0) : 0;
}
constexpr std::uint64_t kActive = 4;  // of state: 1 down, 2 initialising, 3 armed
// Values of phys_state; the others are 1 sleep, 2 polling, 6 recovery, 7 test.
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
  Blame blame = Blame::node;
  std::string_view remedy = {};  // where it is not up
};

constexpr std::string_view kNoSignal =
    "No signal comes from the other end: reseat or replace the cable and its transceivers; if that does not help, try "
    "another switch port.";
constexpr std::string_view kNoSubnetManager =
    "The cable carries a signal, so it is not the cable. See whether ports of other nodes are so, too (ibstat there). "
    "If they are, no subnet manager makes ports active: sminfo on any node names the one that runs, or fails; start it "
    "on its host or switch. If only this port is so, see whether its switch port is enabled, then reboot the node when "
    "no job runs.";
constexpr std::string_view kNoEthernet =
    "The cable carries a signal, so it is not the cable: see whether the port's network interface is up (ip link) and "
    "whether the switch port is enabled.";
constexpr std::string_view kPortDisabled =
    "Somebody or the driver switched the port off: enable it (mlxlink -d DEVICE -a UP, or ibportstate), and see "
    "whether other nodes have it on.";
constexpr std::string_view kInterfaceDisabled = "Somebody switched it off on this node: ip link set NAME up.";

// A port that has a signal waits for somebody in the network: the subnet manager, or the switch.
LinkState port_state(const Sysroot& root, const Link& link) {
  const std::uint64_t physical = state_number(root, link.directory + "/phys_state");
  LinkState state{.up = state_number(root, link.directory + "/state") == kActive && physical == kPhysLinkUp,
                  .switched_off = physical == kPhysDisabled,
                  .said = fmt::format("state {}, physical state {}", text_of(root, link.directory + "/state"),
                                      text_of(root, link.directory + "/phys_state")),
                  .remedy = kNoSignal};
  if (state.switched_off) state.remedy = kPortDisabled;
  if (physical == kPhysLinkUp) {
    state.blame = Blame::fabric;
    state.remedy = text_of(root, link.directory + "/link_layer") == "Ethernet" ? kNoEthernet : kNoSubnetManager;
  }
  return state;
}

LinkState state_of(const Sysroot& root, const Link& link) {
  if (link.is_port) return port_state(root, link);
  const auto carrier = root.read_int(link.directory + "/carrier");  // EINVAL while the interface is switched off
  const std::string operstate = text_of(root, link.directory + "/operstate");
  return {.up = carrier == 1 && (operstate == "up" || operstate == "unknown"),
          .switched_off = !carrier,
          .said = carrier ? fmt::format("operstate {}, carrier {}", operstate, *carrier) : "it is switched off",
          .remedy = carrier ? kNoSignal : kInterfaceDisabled};
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
  const auto gbps = scan.decimal();
  return scan.literal(" Gb/sec") ? gbps : std::nullopt;
}

std::vector<Finding> judge_expected(const Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const double least_gbps = evidence.policy().expect.link_gbps;
  std::vector<Finding> findings;
  for (const std::string& name : evidence.policy().expect.links) {
    const Link link = link_named(name);
    const auto add = [&](std::string message) -> Finding& {
      findings.push_back(about(name, Severity::critical, std::move(message)));
      return findings.back();
    };
    if (!is_link_name(name) || !root.exists(link.directory)) {
      add("is not there").remedy =
          "Look for its adapter with lspci and in the kernel log (driver, firmware); reboot the node; if it is still "
          "missing, reseat the card.";
      continue;
    }
    const LinkState state = state_of(root, link);
    if (!state.up) {
      Finding& down = add(fmt::format("is down: {}", state.said));
      down.blame = state.blame;
      down.remedy = state.remedy;
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

// A port whose cable carries a signal must be active; a link that is down but was up within a day is in use.
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
         .blame = state.blame,
         .entity = link.name,
         .message = fmt::format("{}: {}", was_up ? "was up and is not" : "is connected but not active", state.said),
         .remedy = std::string(state.remedy)});
  }
  return findings;
}

// "400 Gb/sec (4X NDR)": 4. 0: it is not said, or it is no port of InfiniBand, whose every port has several lanes.
std::uint64_t lanes_of(const Sysroot& root, const Link& link) {
  if (!link.is_port || text_of(root, link.directory + "/link_layer") != "InfiniBand") return 0;
  const std::string rate = text_of(root, link.directory + "/rate");
  Scan scan(std::string_view(rate).substr(std::min(rate.find('('), rate.size())));
  const auto lanes = scan.literal("(") ? scan.number() : std::nullopt;
  return lanes && scan.literal("X ") ? *lanes : 0;
}

// A cable with a bad lane trains at 1X. 2X is how splitters run; and ports of other adapters may have other cables.
std::vector<Finding> narrow_ports(const Evidence& evidence, const std::vector<Link>& links) {
  const Sysroot& root = evidence.root();
  const auto adapter = [&](const Link& link) { return text_of(root, link.directory + "/../../hca_type"); };
  std::vector<Finding> findings;
  for (const Link& link : links) {
    if (lanes_of(root, link) != 1 || !state_of(root, link).up) continue;
    std::uint64_t widest = 1;
    for (const Link& other : links) {
      const bool compares = other.is_port && state_of(root, other).up && adapter(other) == adapter(link);
      if (compares) widest = std::max(widest, lanes_of(root, other));
    }
    if (widest == 1) continue;
    findings.push_back(
        about(link.name, Severity::warning,
              fmt::format("runs on 1 lane, other ports on {}: {}", widest, text_of(root, link.directory + "/rate")),
              1.0, widest, "lanes"));
  }
  return findings;
}

Result check_net_link(Evidence& evidence) {
  if (!evidence.policy().expect.links.empty()) {
    std::vector<Finding> findings = judge_expected(evidence);
    if (evidence.policy().expect.link_gbps <= 0)
      std::ranges::move(narrow_ports(evidence, watched_links(evidence)), std::back_inserter(findings));
    return judged(std::move(findings), plural(evidence.policy().expect.links.size(), "link") + " up");
  }
  const std::vector<Link> links = watched_links(evidence);
  if (links.empty()) return skipped("expect.links is empty, and there is no physical interface and no RDMA port here");
  Counters keep;
  std::vector<Finding> findings = judge_found(evidence, links, keep);
  std::ranges::move(narrow_ports(evidence, links), std::back_inserter(findings));
  Result result = judged(std::move(findings), fmt::format("{} of {} up", keep.size(), plural(links.size(), "link")));
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kNetLink = {
    .code = "net.link",
    .summary = "links that are down, missing or slow",
    .needs = "/sys/class/net or /sys/class/infiniband",
    .explain =
        "Every link in expect.links, an interface (eth0) or a port of an adapter (mlx5_0/1), must exist, be up, and "
        "have at least expect.link_gbps; otherwise it is critical. If expect.links is empty, it only warns, and only "
        "about two kinds of links: ports that receive a signal but are not active, usually because no subnet manager "
        "responds; and links that are down but were up within the last day. An InfiniBand port on one lane (1X) is a "
        "warning if a port of the same adapter type has more lanes. A polling port that was never up may "
        "simply have no cable.",
    .remedy =
        "Reseat or replace the cable and its transceivers, then check the switch port; compare with ibstat or ethtool "
        "on a healthy node.",
    .run = check_net_link};

}  // namespace ms::health
