#include "health/commands/facts.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "health/evidence/links.h"
#include "health/evidence/mounts.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// One file, one fact.
struct FactFile {
  std::string_view attribute, path;
};
constexpr FactFile kFactFiles[] = {
    {"kernel", "/proc/sys/kernel/osrelease"},
    {"bios.version", "/sys/class/dmi/id/bios_version"},
    {"bios.date", "/sys/class/dmi/id/bios_date"},
    {"machine", "/sys/class/dmi/id/product_name"},
    {"board", "/sys/class/dmi/id/board_name"},
    {"cpu.microcode", "/sys/devices/system/cpu/cpu0/microcode/version"},
    {"cpu.online", "/sys/devices/system/cpu/online"},
    {"cpu.threads", "/sys/devices/system/cpu/smt/control"},
    {"cpu.governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"},
    {"cpu.max_khz", "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"},
    {"clock.source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"},
    {"memory.huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled"},
    {"numa.nodes", "/sys/devices/system/node/online"},
    {"numa.balancing", "/proc/sys/kernel/numa_balancing"},
    {"net.rmem_max", "/proc/sys/net/core/rmem_max"},
    {"net.wmem_max", "/proc/sys/net/core/wmem_max"},
    {"vm.swappiness", "/proc/sys/vm/swappiness"},
    {"vm.nr_hugepages", "/proc/sys/vm/nr_hugepages"},
    {"driver.nvidia", "/sys/module/nvidia/version"},
    {"driver.mlx5", "/sys/module/mlx5_core/version"},
    {"driver.lustre", "/sys/fs/lustre/version"},
};

// Mounts whose options matter to a job, and that are the same on all nodes of a kind.
constexpr std::string_view kFactFilesystems[] = {"nfs",   "nfs4", "lustre", "gpfs", "beegfs", "ceph", "wekafs",
                                                 "panfs", "cifs", "ext4",   "xfs",  "btrfs",  "zfs"};
// Options that name the node itself.
constexpr std::string_view kOwnOptions[] = {"clientaddr=", "port=", "mountport="};

class Gathering {
 public:
  explicit Gathering(Evidence& evidence) : evidence_(evidence), root_(evidence.root()) {}

  Facts run() {
    for (const FactFile& file : kFactFiles) put(std::string(file.attribute), root_.read(file.path, 4096));
    text_files();
    gpus();
    links();
    pcie();
    mounts();
    nccl();
    return std::move(facts_);
  }

 private:
  void put(const std::string& attribute, const std::optional<std::string>& value) {
    constexpr std::size_t kMost = 400;
    if (value && !value->empty()) facts_[attribute] = plain_text(*value, kMost);
  }

  void text_files() {
    for (const std::string& line : split(root_.read("/etc/os-release").value_or(""), '\n')) {
      if (line.starts_with("PRETTY_NAME=")) put("os", line.substr(line.find('=') + 1));
    }
    for (const std::string& line : split(root_.read("/proc/cpuinfo", 1 << 14).value_or(""), '\n')) {
      if (line.starts_with("model name") && !facts_.contains("cpu.model"))
        put("cpu.model", line.substr(line.find(':') + 1));
    }
    for (const std::string& line : split(root_.read("/proc/meminfo").value_or(""), '\n')) {
      Scan scan(line);
      if (!scan.literal("MemTotal:")) continue;
      scan.blanks();
      if (const auto kib = scan.number()) put("memory.mib", std::to_string(*kib / 1024));
    }
    std::vector<std::string> words;  // of the kernel's command line, without what names this node's disk
    for (const std::string& word : split(root_.read("/proc/cmdline", 4096).value_or(""), ' ')) {
      const bool own = word.starts_with("root=") || word.starts_with("BOOT_IMAGE=") || word.starts_with("initrd=") ||
                       word.starts_with("resume=") || word.starts_with("ip=") || word.starts_with("BOOTIF=");
      if (!own) words.push_back(word);
    }
    put("kernel.options", fmt::format("{}", fmt::join(words, " ")));
  }

  void gpus() {
    const GpuSnapshot& snapshot = evidence_.gpus();
    if (!snapshot.driver_version.empty()) put("gpu.driver", snapshot.driver_version);
    std::map<std::string, int> models, nvlinks, widths, vbios, inforoms, clocks, powers;
    for (const Gpu& gpu : snapshot.gpus) {
      ++models[gpu.name.empty() ? "one that does not answer" : gpu.name];
      if (gpu.nvlinks_active) ++nvlinks[fmt::format("{} NVLinks", *gpu.nvlinks_active)];
      if (gpu.pcie_width_max) ++widths[fmt::format("x{}", *gpu.pcie_width_max)];
      if (!gpu.vbios.empty()) ++vbios[gpu.vbios];
      if (!gpu.inforom.empty()) ++inforoms[gpu.inforom];
      if (gpu.clock_max_mhz) ++clocks[fmt::format("{:.0f} MHz", *gpu.clock_max_mhz)];
      if (gpu.power_limit_w) ++powers[fmt::format("{:.0f} W", *gpu.power_limit_w)];
      if (!gpu.pci.empty()) topology(fmt::format("gpu{}", gpu.index), "/sys/bus/pci/devices/" + gpu.pci);
    }
    put("gpu.models", counted(models));
    put("gpu.nvlinks", counted(nvlinks));
    put("gpu.pcie", counted(widths));
    put("gpu.vbios", counted(vbios));
    put("gpu.inforom", counted(inforoms));
    put("gpu.clock_max", counted(clocks));
    put("gpu.power_limit", counted(powers));
  }
  static std::string counted(const std::map<std::string, int>& numbers) {
    std::vector<std::string> parts;
    for (const auto& [name, count] : numbers) parts.push_back(fmt::format("{} x {}", count, name));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  // Adds where a device is plugged in: its memory node, and its address, which names its place on the bus.
  void topology(const std::string& name, const std::string& device) {
    const auto numa = root_.read_int(device + "/numa_node");
    const std::string address = root_.link_name(device);
    if (numa) put("topology." + name, fmt::format("{}, memory node {}", address.empty() ? "?" : address, *numa));
  }

  void links() {
    for (const Link& link : watched_links(evidence_)) {
      const auto of = [&](const char* file) { return root_.read(link.directory + "/" + file, 256).value_or("?"); };
      if (link.is_port) {
        put("link." + link.name, fmt::format("{}, {}, {}", of("state"), of("rate"), of("link_layer")));
      } else {
        put("link." + link.name, fmt::format("{}, {} Mbit/s, MTU {}", of("operstate"), of("speed"), of("mtu")));
      }
    }
    for (const std::string& name : root_.list("/sys/class/infiniband")) {
      const std::string directory = "/sys/class/infiniband/" + name;
      put("hca." + name, fmt::format("{}, firmware {}", root_.read(directory + "/board_id", 256).value_or("?"),
                                     root_.read(directory + "/fw_ver", 256).value_or("?")));
      topology(name, directory + "/device");
    }
  }

  // Adds the links of adapters and NVMe disks to the places where they are plugged in.
  void pcie() {
    for (const std::string& kind : {std::string("infiniband"), std::string("nvme")}) {
      for (const std::string& name : root_.list("/sys/class/" + kind)) {
        const std::string device = fmt::format("/sys/class/{}/{}/device", kind, name);
        const auto width = root_.read(device + "/current_link_width", 64);
        const auto speed = root_.read(device + "/current_link_speed", 64);
        if (width && speed) put("pcie." + name, fmt::format("x{}, {}", *width, *speed));
      }
    }
    for (const std::string& name : root_.list("/sys/class/nvme")) {
      const std::string directory = "/sys/class/nvme/" + name;
      put("nvme." + name, fmt::format("{}, firmware {}", root_.read(directory + "/model", 256).value_or("?"),
                                      root_.read(directory + "/firmware_rev", 256).value_or("?")));
    }
  }

  void mounts() {
    const auto text = root_.read("/proc/self/mountinfo");
    if (!text) return;
    const std::vector<Mount> all = parse_mountinfo(*text);
    for (const Mount& mount : all) {
      if (!contains(kFactFilesystems, mount.type) || &mount != mounted_at(all, mount.path)) continue;
      // Mounted because somebody went there: other nodes need not have it.
      const bool automounted = std::any_of(all.begin(), all.end(), [&](const Mount& of) {
        return of.type == "autofs" && mount.path.starts_with(of.path + "/");
      });
      if (automounted) continue;
      std::vector<std::string> options;
      for (const std::string& option : mount.options) {
        const bool own = std::any_of(std::begin(kOwnOptions), std::end(kOwnOptions),
                                     [&](std::string_view name) { return option.starts_with(name); });
        if (!own) options.push_back(option);
      }
      // A local disk has other names on other nodes; a server has not.
      const std::string source = mount.source.starts_with("/dev/") ? "" : " " + mount.source;
      put("mount." + mount.path, fmt::format("{}{} {}", mount.type, source, fmt::join(options, ",")));
    }
  }

  void nccl() {
    for (const char* file : {"/etc/nccl.conf", "/etc/environment"}) {
      for (const std::string& line : split(root_.read(file).value_or(""), '\n')) {
        const std::size_t equals = line.find('=');
        if (!line.starts_with("NCCL_") || equals == std::string::npos) continue;
        put("nccl." + line.substr(0, equals), line.substr(equals + 1));
      }
    }
    for (const char* directory : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"}) {
      const std::string library = root_.link_name(fmt::format("{}/libnccl.so.2", directory));
      if (!library.empty()) put("nccl.library", library);
    }
  }

  Evidence& evidence_;
  const Sysroot& root_;
  Facts facts_;
};

}  // namespace

Facts gather_facts(Evidence& evidence) { return Gathering(evidence).run(); }

std::string to_json(const NodeFacts& node) {
  return Json{{"schema", 1},
              {"node", node.node},
              {"wall_s", node.wall_s},
              {"state_known", node.state_known},
              {"last_active_wall_s", node.last_active_wall_s},
              {"drains", node.drains},
              {"facts", node.facts},
              {"report", Json::parse(as_json(node.report))}}
             .dump() +
         "\n";
}

NodeFacts node_facts_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.get<int>("schema") != 1 || json.get<std::string>("node").empty())
      throw Error("facts.format", Blame::node, "this is no answer of this version's ms-diag facts");
    return {.node = json.get<std::string>("node"),
            .facts = json.get<Facts>("facts"),
            .report = from_json(json.at("report").dump()),
            .wall_s = json.get<double>("wall_s"),
            .state_known = json.get<bool>("state_known"),
            .last_active_wall_s = json.get<double>("last_active_wall_s"),
            .drains = json.get<int>("drains")};
  } catch (const JsonError& error) {
    throw Error("facts.format", Blame::node, fmt::format("this is no answer of ms-diag facts: {}", error.what()));
  }
}

}  // namespace ms::health
