#include "health/commands/manual.h"

#include <fmt/ranges.h>

#include <cctype>
#include <iterator>
#include <utility>

#include "base/man.h"
#include "base/text.h"
#include "health/checks/registry.h"
#include "health/commands/causes.h"
#include "health/evidence/scan.h"
#include "health/evidence/xid.h"

namespace ms::health {
namespace {

constexpr std::string_view kLevels[] = {
    "Passive checks: they read a few files and counters, and query the driver once. Run as root in every prolog.",
    "Active checks: they load the node for seconds. Run as the user in a job step, or by hand, on an idle node. Checks "
    "that load different parts of the node run in parallel.",
    "Active checks that run only by hand: soak tests for the time given with --soak, and a disk test in the directory "
    "given with --directory."};

std::string facts(const Check& check) {
  std::string text = fmt::format(
      "Blame: {}. Time limit {}; exceeding it is {}.", to_string(check.blame), format_duration(check.deadline_s),
      check.on_hang ? fmt::format("a {} finding", to_string(*check.on_hang)) : "no finding (not measured)");
  if (!check.needs.empty()) text += fmt::format(" Needs {}.", check.needs);
  text += fmt::format(" Tested on {}.", proof(check));
  if (const auto names = to_strings(check.takes); !names.empty()) {
    text += fmt::format(" No other check uses the {} meanwhile.", fmt::join(names, " or the "));
  }
  if (check.soaks) text += " The soak time is added to the time limit.";
  if (check.user_can_cause) text += " A user's job can cause it, so it never drains a node.";
  if (const std::string causes = causes_of(check.code); !causes.empty()) text += " " + causes;
  return text;
}

std::string sentence(std::string_view half) {
  std::string text(half);
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

std::string paragraphs(const Check& check) {
  return fmt::format("{}\n\n{}\n\n{}\n\nRemedy: {}", sentence(check.summary), check.explain, facts(check),
                     check.remedy);
}

// "79", "Xid 79", or the line of a kernel log with whatever is before it.
std::optional<XidLine> xid_in(std::string_view text) {
  if (const std::size_t line = text.find("NVRM: Xid "); line != std::string_view::npos)
    return parse_xid(trim(text.substr(line)));
  Scan scan(trim(text));
  if (scan.one_of({"Xid", "xid", "XID"})) scan.one_of({" ", ":", "-"});
  scan.blanks();
  const auto number = scan.number();
  if (!number || *number > 9999 || !scan.at_end()) return std::nullopt;
  return XidLine{.pci = {}, .number = static_cast<int>(*number), .action = {}};
}

struct XidAnswer {
  std::string what;
  Severity severity = Severity::warning;
  std::string remedy;
};

XidAnswer answer(const XidLine& xid, const Check& check) {
  const std::string remedy(check.remedy);
  if (xid.action) {
    const RecoveryAdvice advice = advice_for(*xid.action);
    return {fmt::format("the driver asks for {}", advice.words), advice.severity, remedy};
  }
  if (xid.nvlink) {
    const NvlinkAdvice advice = advice_for(*xid.nvlink);
    return {fmt::format("{} NVLink error{} ({})", xid.nvlink->fatal ? "fatal" : "nonfatal",
                        xid.nvlink->link < 0 ? "" : fmt::format(" of link {}", xid.nvlink->link), xid.nvlink->unit),
            advice.severity, advice.remedy.empty() ? remedy : std::string(advice.remedy)};
  }
  const XidRow* row = find_xid(xid.number);
  if (row == nullptr) return {"not in the table of ms-diag", Severity::warning, remedy};
  if (row->user_can_cause) {
    return {std::string(row->meaning), Severity::note,
            "A program can cause it: run the program under compute-sanitizer. If other programs get it on the same GPU "
            "too, test the GPU: ms-diag run --level 3 --only 'gpu.*,soak.*'."};
  }
  return {std::string(row->meaning), row->severity, remedy};
}

std::string explain_xid(const XidLine& xid, const Check& check) {
  const auto [what, severity, remedy] = answer(xid, check);
  const bool counts = severity != Severity::note;
  std::string text = fmt::format("Xid {}: {}\n\n", xid.number, what);
  const std::string judged = is_nvlink_xid(xid.number) && !xid.nvlink
                                 ? fmt::format(
                                       "The severity is in the line, so give explain the whole line. ms-diag "
                                       "reports it as {}, critical if the line says Fatal; a warning if the "
                                       "other end of the link or software caused it, or if the line says "
                                       "neither Fatal nor Nonfatal. Nonfatal does not count against the node.",
                                       check.code)
                             : counts ? fmt::format("ms-diag reports it as {}, {}.", check.code, to_string(severity))
                                      : "It does not count against the node.";
  for (const std::string& line : wrap(judged, 100)) text += "  " + line + "\n";
  if (counts || !remedy.starts_with(check.remedy)) {
    for (const std::string& line : wrap("Remedy: " + remedy, 100)) text += "  " + line + "\n";
  }
  return text + fmt::format("\n  More: ms-diag explain {}\n", check.code);
}

std::string policy_text(std::string (*form)(const man::ConfigPage&, std::span<const ConfigRow>)) {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  return form(
      {.name = "ms-diag.toml",
       .summary = "site policy for ms-diag and its Slurm plugin",
       .description =
           "The policy defines whether findings may drain nodes, which findings, how many nodes, and what a healthy "
           "node of the site looks like. Programs that run as root read /etc/ms/ms-diag.toml, or the file named in "
           "plugstack.conf. They accept it only if it belongs to root and no one else can write it; otherwise they do "
           "nothing and log the reason. The file is read at every start, so changes need no restart. ms-diag "
           "--sample-policy prints a file with every key commented out, which is in mode observe.",
       .see_also = {"ms-diag(1)", "ms-checks(7)", "ms_spank(8)"}},
      schema.reference());
}

}  // namespace

std::string checks_page(const std::vector<Check>& checks) {
  man::TopicPage page{
      .name = "ms-checks",
      .summary = "checks of ms-diag, and what to do about their findings",
      .description =
          "A check passes, warns, is critical, is skipped with a reason, or is broken. Broken means that the check "
          "itself failed; it is reported but does not count against the node. A check that exceeds its time limit is "
          "aborted. This is a finding if only hardware, a driver or a file system can be the cause. A check that only "
          "computes is skipped as not measured instead, since slowness is not a fault of the node.\n\n"
          "The drain reason of a node starts with ms-diag: and the code of the worst finding, so that sinfo -R shows "
          "it in its 20 characters. Only codes in act.allow of ms-diag.toml(5) drain a node, and never a finding that "
          "a user's job can cause.",
      .see_also = {"ms-diag(1)", "ms-diag.toml(5)", "ms_spank(8)"}};
  for (std::size_t level = 1; level <= std::size(kLevels); ++level) {
    man::TopicSection section{.title = fmt::format("Level {}", level), .text = std::string(kLevels[level - 1])};
    for (const Check& check : checks) {
      if (std::cmp_equal(check.level, level)) section.items.push_back({std::string(check.code), paragraphs(check)});
    }
    page.sections.push_back(std::move(section));
  }
  return man::topic_page(page);
}

std::string policy_page() { return policy_text(man::config_page); }
std::string sample_policy() { return policy_text(man::sample_config); }

std::string health_text() {
  return "The checks of level 1 run within the time limit of a prolog. In mode act, a critical finding of "
         "act.allow drains the node; jobs that run there go on. Always exits 0, since Slurm ignores the status; the "
         "system log says what "
         "was done.\n\n"
         "HealthCheckProgram takes no arguments, so name the script that runs this command. In slurm.conf:\n\n"
         "HealthCheckProgram=/usr/local/libexec/ms/ms-health\n\n"
         "HealthCheckInterval=300\n\n"
         "HealthCheckNodeState=ANY,CYCLE\n\n"
         "CYCLE spreads the nodes over the interval. In newer versions of Slurm two values stand alone: with "
         "START_ONLY (25.11) the checks run only when slurmd starts, with REBOOT_ONLY (26.05) only when the node "
         "reports a reboot. Neither finds a node that goes bad at work; the prolog does, before the "
         "next job. ms-diag check-site reports errors in these lines.\n\n"
         "Unlike NHC, health never undrains a node, not even one that it drained itself: that the passive checks find "
         "nothing any more does not show that the node is well under load. ms-diag repair undrains it after "
         "the tests of level 2 and 3; without that service, use ms-diag undrain --verified.";
}

std::vector<std::pair<std::string, std::string>> site_check_terms() {
  return {
      {"files",
       "Every file in paths.checks of ms-diag.toml(5) is a check, of at most 32. It must be executable, belong to "
       "root, "
       "be writable only by root, and be no link; the same holds for the directory. Names that begin with a dot are "
       "ignored. Every other file is reported as broken and not run."},
      {"run",
       "In ms-diag run, prolog, epilog and health, by root only; a user's ms-diag run skips them. All run at the same "
       "time, without arguments, as root. The environment is PATH=/usr/sbin:/usr/bin:/sbin:/bin, LC_ALL=C and, if "
       "Slurm set it, SLURMD_NODENAME. Standard input is empty; at most 64 KiB of output are read. The time limit is "
       "16 s, and about two thirds of prolog.deadline in prolog, epilog and health. After it, the check gets SIGTERM, "
       "then SIGKILL."},
      {"exit 0", "The node passed, or there is nothing to check on it."},
      {"exit 1", "A warning, if the first line of standard output is a finding."},
      {"exit 2",
       "A critical finding, if the first line of standard output is one. It drains the node only if act.allow has "
       "site.checks."},
      {"exit 3", "The check cannot tell. It counts as skipped."},
      {"other",
       "Another status, a signal, a timeout, or a status without a finding: the check is broken. That does "
       "not count against the node."},
      {"finding",
       "A line of text with the word WARNING for exit 1 or CRITICAL for exit 2, as Nagios plugins print it; the part "
       "after '|' is ignored. Or one line of JSON with severity (warning or critical, as the exit status) and message, "
       "optionally entity and remedy, all strings. Its code is site.checks, and its entity begins with the name of "
       "the file."},
  };
}

std::string explain(const std::vector<Check>& checks, std::string_view code) {
  const Check* check = find_check(checks, code);
  const Check* const gpu_xid = find_check(checks, "gpu.xid");
  if (check == nullptr && gpu_xid != nullptr) {
    if (const auto xid = xid_in(code)) return explain_xid(*xid, *gpu_xid);
  }
  if (check == nullptr && code.find("SXid (PCI:") != std::string_view::npos) check = find_check(checks, "gpu.sxid");
  if (check == nullptr) {
    std::vector<std::string> codes;
    for (const Check& row : checks) codes.emplace_back(row.code);
    const std::optional<std::string> near = nearest_name(code, codes);
    throw user_error("check.unknown", fmt::format("there is no check '{}'", code),
                     near ? fmt::format("did you mean {}?", *near) : "ms-diag list shows all");
  }
  std::string text = fmt::format("{} (level {}, {})\n", check->code, check->level, to_string(check->cost));
  for (const std::string& paragraph : split(paragraphs(*check), '\n')) {
    if (paragraph.empty()) continue;
    text += "\n";
    for (const std::string& line : wrap(paragraph, 100)) text += "  " + line + "\n";
  }
  return text;
}

}  // namespace ms::health
