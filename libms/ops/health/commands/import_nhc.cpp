#include "health/commands/import_nhc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "base/print.h"
#include "base/text.h"
#include "health/checks/check.h"
#include "health/commands/nhc_syntax.h"
#include "health/policy.h"

namespace ms::health {
namespace {

using Fate = NhcLine::Fate;
using Options = NhcOptions;

constexpr std::string_view kFates[] = {"translated", "partly translated", "not translated", "for other nodes"};
constexpr std::string_view kOwnCheck = "write a check of the site's own, see SITE CHECKS in ms-diag(1)";

// Reads "32gb", "12582912" (KiB), "1m" in KiB. nullopt: it is no size.
std::optional<double> size_kib(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text.ends_with('b')) text.pop_back();
  double factor = 1;
  constexpr std::string_view kUnits = "kmgtpe";
  if (!text.empty() && kUnits.find(text.back()) != std::string_view::npos) {
    factor = std::pow(1024, static_cast<double>(kUnits.find(text.back())));
    text.pop_back();
  }
  constexpr std::size_t kMostDigits = 15;
  if (!is_digits(text) || text.size() > kMostDigits) return std::nullopt;
  return std::stod(text) * factor;
}
// Reads "3%". nullopt: it is no share.
std::optional<double> percent_of(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  return is_digits(text) && text.size() <= 2 ? std::optional(std::stod(std::string(text))) : std::nullopt;
}

struct Said {
  Fate fate = Fate::translated;
  std::string why = {};
};
Said no(std::string_view why) { return {Fate::not_translated, std::string(why)}; }
Said partly(std::string_view lost) { return {lost.empty() ? Fate::translated : Fate::partly, std::string(lost)}; }

class Translation {
 public:
  // Each returns what became of the line.
  Said line(const std::string& command) {
    const std::optional<Words> words = shell_words(command);
    if (!words) return no("it is more than one simple command of the shell");
    if (words->empty()) return no("it has no check");
    if (words->front().starts_with("check_")) return check(*words);
    return variable(*words);
  }

  void finish(std::vector<NhcLine>& lines) {
    finish_links(lines);
    finish_space(lines);
  }

  void begin_line(std::size_t index) { line_ = index; }

  std::string toml() const {
    std::map<std::string, std::string> sections;
    const auto add = [&](const std::string& key, const std::string& value) {
      const std::size_t dot = key.find('.');
      sections[key.substr(0, dot)] += fmt::format("{} = {}\n", key.substr(dot + 1), value);
    };
    for (const auto& [key, value] : values_) add(key, value);
    for (const auto& [key, list] : lists_) {
      std::string value;
      for (const std::string& text : list) value += (value.empty() ? "" : ", ") + Json(text).dump_ascii();
      add(key, "[" + value + "]");
    }
    std::string text;
    for (const auto& [name, body] : sections) text += fmt::format("\n[{}]\n{}", name, body);
    return text;
  }

 private:
  // All links have one least rate: the lowest one, and none if interfaces of Ethernet are among them.
  void finish_links(std::vector<NhcLine>& lines) {
    if (port_gbps_.empty()) return;
    const double least_gbps = std::ranges::min(port_gbps_, {}, &std::pair<std::size_t, double>::second).second;
    if (!has_interface_) set("expect.link_gbps", fmt::format("{:g}", least_gbps));
    for (const auto& [line, gbps] : port_gbps_) {
      if (!has_interface_ && gbps == least_gbps) continue;
      lines[line].fate = Fate::partly;
      lines[line].why = "its rate is lost: expect.link_gbps holds for the links of all lines";
    }
  }

  // All places have one limit: the strictest.
  void finish_space(std::vector<NhcLine>& lines) {
    if (free_percent_.empty()) return;
    const double most = std::ranges::max(free_percent_, {}, &std::pair<std::size_t, double>::second).second;
    set("limits.space_free_percent", fmt::format("{:g}", most));
    for (const auto& [line, percent] : free_percent_) {
      if (percent == most) continue;
      lines[line].fate = Fate::partly;
      lines[line].why =
          "its limit is lost: the strictest of all lines, limits.space_free_percent, holds for all places";
    }
  }

  // A key has one value: the first stays. Returns what is lost.
  std::string set(const std::string& key, const std::string& value) {
    const auto [at, is_new] = values_.emplace(key, value);
    return is_new || at->second == value ? "" : fmt::format("{} is {} already", key, at->second);
  }
  void add(const std::string& key, const std::string& text) {
    Words& list = lists_[key];
    if (std::ranges::find(list, text) == list.end()) list.push_back(text);
  }

  Said variable(const Words& words) {
    const bool exports = words[0] == "export";
    if (words.size() != (exports ? 2U : 1U)) return no(kOwnCheck);
    const std::string& word = words.back();
    const std::string name = word.substr(0, word.find('='));
    if (name.size() == word.size()) return no(kOwnCheck);
    if (name == "MARK_OFFLINE") {
      if (word.ends_with("=0")) return partly(set("act.mode", "\"observe\""));
      return no("nothing is drained until you set act.mode = \"act\"");
    }
    constexpr std::string_view kOfNhc =
        "DEBUG,VERBOSE,SILENT,TIMEOUT,DETACHED_MODE*,FORCE_SETSID,LOGFILE,NHC_RM,NHC_CHECK_ALL,NHC_CHECK_FORKED,PATH,"
        "HELPERDIR,INCDIR,RESULTFILE,IGNORE_EMPTY_NOTE,OFFLINE_NODE,ONLINE_NODE,SLURM_SCONTROL,SLURM_SINFO,DF_*,DFI_*,"
        "MCELOG,MCELOG_ARGS,NVIDIA_HEALTHMON*,STAT_CMD,STAT_FMT_ARGS,PASSWD_DATA_SRC";
    if (matches(kOfNhc, name)) return {Fate::translated, "it only says how NHC runs"};
    return no(fmt::format("ms-diag has nothing like {}", name));
  }

  Said check(const Words& words) {
    struct Row {
      std::string_view name;
      Said (Translation::*translate)(const Words&);
    };
    using T = Translation;
    static constexpr Row kRows[] = {
        {"check_hw_cpuinfo", &T::cpuinfo}, {"check_hw_physmem", &T::physmem}, {"check_hw_ib", &T::ib},
        {"check_hw_eth", &T::eth},         {"check_fs_mount", &T::mount},     {"check_fs_mount_rw", &T::mount},
        {"check_fs_mount_ro", &T::mount},  {"check_fs_free", &T::space},      {"check_fs_used", &T::space},
        {"check_ps_service", &T::service}, {"check_ps_daemon", &T::daemon},   {"check_dmi_data_match", &T::dmi},
    };
    if (const auto row = std::ranges::find(kRows, words[0], &Row::name); row != std::end(kRows)) {
      return (this->*row->translate)(words);
    }
    struct Fixed {
      std::string_view name;
      Fate fate;
      std::string_view why;
    };
    static constexpr Fixed kFixed[] = {
        {"check_hw_mcelog", Fate::translated, "host.mce does it, without a key"},
        {"check_nv_healthmon", Fate::translated, "the checks gpu.* do it, without keys"},
        {"check_nvsmi_healthmon", Fate::translated, "the checks gpu.* do it, without keys"},
        {"check_ps_unauth_users", Fate::partly, "host.strays warns of busy processes outside jobs, and kills none"},
        {"check_ps_userproc_lineage", Fate::partly, "host.strays warns of busy processes outside jobs, and kills none"},
        {"check_ps_loadavg", Fate::partly, "host.load compares the load with the number of CPUs, not with a number"},
        {"check_hw_swap_free", Fate::not_translated,
         "host.swap warns of memory that was swapped out, not of free swap"},
        {"check_hw_physmem_free", Fate::not_translated, "limits.memory_free_percent is a share of the memory"},
        {"check_hw_mem_free", Fate::not_translated, "limits.memory_free_percent is a share of the memory"},
        {"check_net_ping", Fate::not_translated, "ms-netcheck measures the network between nodes"},
    };
    if (const auto row = std::ranges::find(kFixed, words[0], &Fixed::name); row != std::end(kFixed)) {
      return {row->fate, std::string(row->why)};
    }
    return no(kOwnCheck);
  }

  Said cpuinfo(const Words& words) {
    if (words.size() != 4 || !is_digits(words[3]) || words[3].size() > 5) return no("it has no number of threads");
    const std::string lost = set("expect.cpus", words[3]);
    return partly(lost.empty() ? "sockets and cores are compared by ms-diag fleet only" : lost);
  }

  Said physmem(const Words& words) {
    const auto least_kib = words.size() > 1 ? size_kib(words[1]) : std::nullopt;
    if (!least_kib || *least_kib < 1024) return no("expect.memory_mib is the least memory, which it does not have");
    double missing_percent = 0;
    if (words.size() > 3) {
      const auto share = percent_of(words[3]), size = size_kib(words[3]);
      if (!share && !size) return no("its tolerance is no size and no share");
      missing_percent = share ? *share : std::min(99.0, 100 * *size / *least_kib);
    }
    std::string lost = set("expect.memory_mib", fmt::format("{:.0f}", std::floor(*least_kib / 1024)));
    if (lost.empty()) lost = set("limits.memory_missing_percent", fmt::format("{:.3g}", missing_percent));
    return partly(lost.empty() && words.size() > 2 && !words[2].empty() ? "the maximum is not checked" : lost);
  }

  Said ib(const Words& words) {
    if (words.size() < 3) return no("it names no device, so no link: add the ports to expect.links");
    std::string port = words[2];  // "mlx5_0:1"
    const std::size_t colon = port.find(':');
    if (colon != std::string::npos) port[colon] = '/';
    add("expect.links", colon == std::string::npos ? port + "/1" : port);
    if (is_digits(words[1]) && words[1].size() < 6) port_gbps_.emplace_back(line_, std::stod(words[1]));
    return partly(colon == std::string::npos ? "it names no port; 1 is taken" : "");
  }

  Said eth(const Words& words) {
    if (words.size() != 2) return no("it names no interface");
    has_interface_ = true;
    add("expect.links", words[1]);
    return partly("the interface must also be up, which NHC does not ask for");
  }

  Said mount(const Words& words) {
    const std::optional<Options> options = nhc_options_of(words, "0r", "tsoOeEfF");
    if (!options) return no("it has options that are not known");
    if (options->has("0")) return no("it is not fatal; a mount of expect.mounts that is missing is critical");
    if (options->has("F")) return no("an automounter may have unmounted it; expect.mounts must be mounted");
    Words paths = options->rest;
    bool compares = options->has("tso");
    if (options->has("f")) {
      paths.insert(paths.begin(), options->given.at('f'));
    } else if (paths.size() > 1) {  // mountpoint source type options
      paths.resize(1);
      compares = true;
    }
    const auto is_path = [](const std::string& path) {
      return path.starts_with('/') && !path.ends_with(":rw") && !path.ends_with(":ro");
    };
    if (paths.empty() || !std::ranges::all_of(paths, is_path)) return no("it names no absolute path");
    const std::string mode = words[0] == "check_fs_mount_rw" ? ":rw" : words[0] == "check_fs_mount_ro" ? ":ro" : "";
    for (const std::string& path : paths) add("expect.mounts", path + mode);
    std::string lost = compares ? "source, type and options are not compared" : "";
    if (options->has("rOeE")) lost += fmt::format("{}nothing is mounted or run", lost.empty() ? "" : "; ");
    return partly(lost);
  }

  Said space(const Words& words) {
    constexpr std::string_view kPlaces[] = {"/", "/tmp", "/var", "/dev/shm", "/var/spool/slurmd"};
    if (words.size() != 3 || std::ranges::find(kPlaces, words[1]) == std::end(kPlaces)) {
      return no("host.space looks at /, /tmp, /var, /dev/shm and /var/spool/slurmd only");
    }
    const auto share = percent_of(words[2]);
    if (!share) return no("limits.space_free_percent is a share of the file system");
    free_percent_.emplace_back(line_, words[0] == "check_fs_used" ? 100 - *share : *share);
    return {};
  }

  Said service(const Words& words) {
    const std::optional<Options> options = nhc_options_of(words, "0fSrcsk", "udmeE");
    if (!options || options->rest.size() != 1) return no("it does not name one service");
    if (options->has("skE")) return no("it is about a process that must not run");
    if (options->has("m")) return no("expect.processes has names, not patterns");
    add("expect.processes", options->has("d") ? options->given.at('d') : options->rest[0]);
    std::string lost = options->has("u") ? "its user is not compared" : "";
    if (options->has("Srce")) lost += fmt::format("{}it is not started", lost.empty() ? "" : "; ");
    return partly(lost);
  }

  Said daemon(const Words& words) {
    if (words.size() < 2 || words[1].find_first_of("*?[{/") != std::string::npos)
      return no("it does not name a process");
    add("expect.processes", words[1]);
    return partly(words.size() > 2 ? "its user and arguments are not compared" : "");
  }

  Said dmi(const Words& words) {
    constexpr std::string_view kBios = "BIOS Information: Version: ";
    const bool is_version = words.size() == 2 && words[1].starts_with(kBios) && words[1].size() > kBios.size();
    if (!is_version || words[1].find_first_of("*?[") != std::string::npos) return no(kOwnCheck);
    return partly(set("expect.bios", Json(words[1].substr(kBios.size())).dump_ascii()));
  }

  std::size_t line_ = 0;
  std::map<std::string, std::string> values_;
  std::map<std::string, Words> lists_;
  std::vector<std::pair<std::size_t, double>> port_gbps_, free_percent_;
  bool has_interface_ = false;
};

}  // namespace

NhcImport import_nhc(std::string_view text, const std::string& node) {
  NhcImport result;
  for (auto& [number, line] : nhc_lines(text)) result.lines.push_back({.number = number, .text = std::move(line)});
  Translation translation;
  for (std::size_t i = 0; i < result.lines.size(); ++i) {
    NhcLine& line = result.lines[i];
    const std::size_t bars = line.text.find("||");
    const std::string target(trim(std::string_view(line.text).substr(0, bars)));
    const std::optional<bool> matches = target == "*" ? true : matches_node(target, node);
    if (bars == std::string::npos || target.empty()) {
      line.why = "NHC ignores a line without target and ||";
    } else if (node.empty() && target != "*") {
      line.why = "it is for some nodes; give --node";
    } else if (!matches) {
      line.why = "its target is not a glob, a range or a regular expression that can be read";
    } else if (!*matches) {
      line.fate = Fate::other_node;
    } else {
      translation.begin_line(i);
      const Said said = translation.line(line.text.substr(bars + 2));
      line.fate = said.fate;
      line.why = said.why;
    }
  }
  translation.finish(result.lines);
  result.lost = static_cast<std::size_t>(std::ranges::count_if(result.lines, [](const NhcLine& line) {
    return line.fate == Fate::partly || line.fate == Fate::not_translated;
  }));
  result.policy = fmt::format(
      "# From a configuration of NHC, for {}, by ms-diag import-nhc: {} of {} translated as a whole.\n"
      "# Findings are only logged until act.mode is \"act\".\n{}\n# The lines:\n",
      node.empty() ? "all nodes" : plain_text(node, 80), result.lines.size() - result.lost,
      plural(result.lines.size(), "line"), translation.toml());
  for (const NhcLine& line : result.lines) {
    result.policy += fmt::format("# {}: {}\n#   {}{}{}\n", line.number, plain_text(line.text, 1000),
                                 kFates[static_cast<std::size_t>(line.fate)], line.why.empty() ? "" : ": ", line.why);
  }
  return result;
}

namespace {

int print_import(const Args& args) {
  const std::string file = args.get("FILE");
  const NhcImport result = import_nhc(read_file(file, Blame::user), args.get("node"));
  if (result.lines.empty()) throw user_error("import.empty", fmt::format("{}: it has no line with a check", file));
  Policy policy;  // what is printed can be loaded
  ConfigSchema schema;
  bind(schema, policy);
  schema.load_text(result.policy, file);
  schema.throw_if_problems();
  write_out(result.policy);
  for (const NhcLine& line : result.lines) {
    if (line.fate != Fate::partly && line.fate != Fate::not_translated) continue;
    print_err("{}:{}: {}: {}\n", file, line.number, kFates[static_cast<std::size_t>(line.fate)], line.why);
  }
  return result.lost == 0 ? 0 : 1;
}

}  // namespace

Command import_nhc_command() {
  return {.name = "import-nhc",
          .summary = "turn a configuration of LBNL Node Health Check into a policy",
          .positionals = {{"FILE", "The configuration, as in /etc/nhc/nhc.conf."}},
          .options = {{"node", "NAME", "Translate the lines for this node (default: only those whose target is '*')."}},
          .run = print_import,
          .description =
              "Prints a policy (ms-diag.toml(5)) in mode observe, with every line of FILE as a comment that says what "
              "became of it. Lines that are translated only partly or not are also listed on standard error, with "
              "the reason. Exits 0 if all lines were translated as a whole, 1 if not. A line that needs a shell, or a "
              "check that ms-diag does not have, can become a check of the site's own, see SITE CHECKS."};
}

}  // namespace ms::health
