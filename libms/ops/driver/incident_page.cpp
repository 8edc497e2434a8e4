// Implements incident_page of incident.h: what broke, where, and what was done come first, then what shows it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/html.h"
#include "base/text.h"
#include "base/utc.h"
#include "driver/incident.h"
#include "driver/judge.h"
#include "driver/time_spent.h"
#include "slurm/hostlist.h"

namespace ms {

extern const PagePart kIncidentStyle;

namespace driver {
namespace {

constexpr double kLikely = 0.5, kSure = 0.8;
constexpr std::size_t kText = 600, kAlternatives = 2;

std::string html(std::string_view text) { return page_text(text, kText); }

// A cause in words, and what would tell more where the driver's evidence does not.
struct CauseRow {
  std::string_view cause, words, collect;
};
constexpr std::array<CauseRow, 17> kCauses{
    {{kHang, "The run hung: no rank made progress",
      "the flight recorders' dumps (TORCH_FR_DUMP_TEMP_FILE on storage "
      "that all nodes share), and py-spy on the nodes for stacks of Python"},
     {kCollectiveTimeout, "A collective timed out", "the flight recorders' dumps (TORCH_FR_DUMP_TEMP_FILE)"},
     {kMismatchCause, "The program's ranks called different collectives", ""},
     {kWordless, "A rank died without a word",
      "the kernel log of its node (dmesg -T) for the OOM killer or an Xid, and "
      "the rank's core dump"},
     {"node_lost", "A node was lost", "the node's console or BMC log, and slurmctld's log of that time"},
     {"packet_loss", "A node lost packets", "the error counters of the node's port and of its switch"},
     {"gpu_fault", "A GPU failed", ""},
     {"node_fault", "A node failed a check of the run", ""},
     {"peer_lost", "A rank lost its peer", "the output and the kernel log of the peer's node"},
     {"finding", "ms-diag found a fault while the run trained", ""},
     {"evicted", "A node was excluded on request", ""},
     {kDrained, "An administrator drained a node", ""},
     {kSlowNode, "A node was slow", ""},
     {kStorage, "Storage failed", "the file server's log of that time"},
     {kException, "The program failed with an exception", ""},
     {"time_limit", "Slurm ended it at its time limit", ""},
     {"driver_killed", "The driver was killed", "slurmctld's log of that time (scancel, a time limit, a lost node)"}}};

// The reasons of ms-tracepp hang in words.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kReasons{
    {{"no_trace", "left no trace"},
     {"failed", "failed"},
     {"silent", "stopped without a word"},
     {"left", "ended its run while others waited"},
     {"compute", "does not finish on its device"},
     {"data_wait", "waits for data"},
     {"save", "waits for a checkpoint"},
     {"not_issuing", "never called the collective that all others wait in"},
     {"missing_call", "left a collective out"},
     {"extra_call", "called a collective too many"},
     {"wrong_kind", "called another collective"},
     {"wrong_size", "called the collective with another size"},
     {"wrong_dtype", "called the collective with another type"},
     {"wrong_order", "called collectives in another order"},
     {"transfer", "all called it, and it does not end: the network or its library"},
     {"waits_alone", "waits in a collective that most others have not called"}}};

std::string_view words_of_reason(std::string_view reason) {
  const auto* const row = std::ranges::find(kReasons, reason, &decltype(kReasons)::value_type::first);
  return row == kReasons.end() ? reason : row->second;
}

const CauseRow* row_of(std::string_view cause) {
  const auto* const row = std::ranges::find(kCauses, cause, &CauseRow::cause);
  return row == kCauses.end() ? nullptr : row;
}

std::string words_of(const AttemptEntry& attempt) {
  const CauseRow* const row = row_of(attempt.cause);
  return row != nullptr ? std::string(row->words) : "The attempt ended: " + attempt.cause;
}

bool is_sure(const Incident& it) { return !it.candidates.empty() && it.candidates.front().confidence >= kSure; }

// The nodes at fault, as the driver judged; empty: it could not tell.
std::vector<std::string> at_fault(const Incident& it) {
  if (!it.attempt->excluded.empty()) return it.attempt->excluded;
  return it.attempt->suspects.size() < it.attempt->nodes.size() ? it.attempt->suspects : std::vector<std::string>();
}

// Whether ranks on other nodes, in this attempt or in another one, said the same error.
bool is_of_program(const Ledger& ledger, const AttemptEntry& attempt) {
  if (attempt.cause == kMismatchCause) return true;
  std::set<std::string> nodes;
  for (const AttemptEntry& other : ledger.attempts)
    if (!attempt.error.empty() && slurm::without_numbers(other.error) == slurm::without_numbers(attempt.error))
      nodes.insert(other.said_on.begin(), other.said_on.end());
  return nodes.size() > 1;
}

std::string where_html(const Ledger& ledger, const Incident& it) {
  const std::vector<std::string> nodes = at_fault(it);
  std::string text;
  if (is_of_program(ledger, *it.attempt)) {
    text = "<p>In no node: in the program</p>";
  } else if (!nodes.empty() && !it.attempt->error.empty()) {
    text = fmt::format("<p>In the program, or on {}</p>", html(slurm::fold_hostlist(nodes)));
  } else if (!nodes.empty()) {
    text = fmt::format("<p>{}</p>", html(slurm::fold_hostlist(nodes)));
  } else {
    text = "<p>Cannot tell</p><p>Nothing tells one node from the others.</p>";
  }
  // Two that are equally likely are both shown: one alone would look like the answer.
  for (const Candidate& one : it.candidates) {
    if (one.confidence < std::max(kLikely, it.candidates.front().confidence)) break;
    text += fmt::format("<p>{}: {} ({:.0f} % sure)</p>", html(one.who), html(words_of_reason(one.reason)),
                        100 * one.confidence);
  }
  if (it.attempt->rank >= 0 && !it.attempt->said_on.empty())
    text += fmt::format("<p>rank {} printed the error first, on {}</p>", it.attempt->rank,
                        html(slurm::fold_hostlist(it.attempt->said_on)));
  return text;
}

// The fate of a node at fault: whether the next attempt has it, and what a check of it said.
std::string fate_html(const Ledger& ledger, const Incident& it, const std::string& node) {
  std::string text = html(node);
  const auto excluded = ledger.excluded.find(node);
  if (excluded != ledger.excluded.end()) {
    text += " was excluded: " + html(excluded->second);
  } else if (it.next != nullptr) {
    const bool works = std::ranges::count(it.next->nodes, node) > 0;
    text += fmt::format(" {} attempt {}", works ? "works on in" : "was left out of", it.next->number);
  } else {
    text += " is not excluded";
  }
  if (excluded != ledger.excluded.end()) return "<li>" + text + "</li>";
  const auto check = std::ranges::find_if(
      it.claims, [&](const Claim& claim) { return claim.source == "ms-diag" && claim.text.starts_with(node + ": "); });
  text += check == it.claims.end() ? "; there is no result of a health check of it"
                                   : "; its check " + html(std::string_view(check->text).substr(node.size() + 2));
  return "<li>" + text + "</li>";
}

std::string done_html(const Ledger& ledger, const Incident& it) {
  std::string items, first;
  for (const std::string& node : at_fault(it)) items += fate_html(ledger, it, node);
  const AttemptEntry* const next = it.next;
  if (next == nullptr) {
    first = "The run ended";
    items += fmt::format("<li>no attempt followed; the attempt's exit code is {}</li>", it.attempt->code);
  } else {
    first = next->first_step_s > 0 ? fmt::format("Training again {} after the last progress",
                                                 format_duration(next->first_step_s - it.fault_s))
                                   : fmt::format("Attempt {} began", next->number);
    items += fmt::format(
        "<li>attempt {} began on {}{}</li>", next->number, html(slurm::fold_hostlist(next->nodes)),
        next->from_step >= 0 ? fmt::format("; at its first heartbeat training step {} was done", next->from_step) : "");
    if (next->job != it.attempt->job) items += fmt::format("<li>the job was requeued as {}</li>", html(next->job));
    const std::int64_t lost = it.attempt->to_step - next->from_step;
    if (next->from_step >= 0 && lost > 0)
      items += fmt::format("<li>at least {} repeated</li>", plural(static_cast<std::size_t>(lost), "training step"));
  }
  return fmt::format("<p>{}</p><ul>{}</ul>", first, items);
}

std::string answer_html(const Ledger& ledger, const Incident& it) {
  const auto card = [](std::string_view title, const std::string& text) {
    return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", title, text);
  };
  const std::string what = fmt::format("<p>{}</p><p>{}</p>", html(words_of(*it.attempt)), html(it.attempt->why));
  return "<dl class=\"answer\">\n" + card("What broke", what) + card("Where", where_html(ledger, it)) +
         card("What was done", done_html(ledger, it)) + "</dl>\n";
}

std::string clock_text(double at_s) {
  const auto tenths = static_cast<std::int64_t>(std::floor(at_s * 10));
  return fmt::format("{}.{}", utc_text(static_cast<double>(tenths / 10)).substr(11, 8), tenths % 10);
}

std::string moments_html(const Incident& it, double now_s) {
  std::string text = "<h2>What was seen, and when</h2>\n" + time_axis(it, now_s) +
                     "<table class=\"text\">\n<tr><th></th><th>UTC</th><th>since the last progress</th><th>seen "
                     "by</th><th>node</th><th>what</th></tr>\n";
  for (std::size_t i = 0; i < it.moments.size(); ++i) {
    const Moment& moment = it.moments[i];
    text += fmt::format(
        "<tr><td><span class=\"dot {}\">{}</span></td><td class=\"short\">{}</td><td class=\"short\">{:+.1f} s</td>"
        "<td class=\"short\">{}</td><td class=\"short\">{}</td><td>{}</td></tr>\n",
        to_string(moment.sort), i + 1, clock_text(moment.at_s), moment.at_s - it.fault_s, html(moment.source),
        html(moment.node), html(moment.text));
  }
  return text + "</table>\n";
}

std::string claims_html(const Incident& it) {
  std::string text = "<h2>What each source says</h2>\n";
  if (!it.verdict.empty()) text += fmt::format("<p>Together: {}</p>\n", html(it.verdict));
  if (it.claims.empty()) return text + "<p>No evidence was kept of this attempt but the ledger's.</p>\n";
  const bool compared = std::ranges::any_of(it.claims, [](const Claim& claim) { return !claim.stance.empty(); });
  text += fmt::format("<table class=\"text\">\n<tr><th>source</th><th>says</th>{}<th>file</th></tr>\n",
                      compared ? "<th>beside the answer</th>" : "");
  for (const Claim& claim : it.claims)
    text += fmt::format("<tr><td>{}</td><td>{}</td>{}<td>{}</td></tr>\n", html(claim.source), html(claim.text),
                        compared ? fmt::format("<td class=\"short\">{}</td>", html(claim.stance)) : "",
                        html(claim.file.substr(claim.file.rfind('/') + 1)));
  text += "</table>\n";
  if (it.evidence.empty()) return text;
  text += "<ul>\n";
  for (const std::string& line : it.evidence) text += fmt::format("<li>{}</li>\n", html(line));
  return text + "</ul>\n";
}

std::string alternatives_html(const Incident& it) {
  std::string items;
  for (std::size_t i = 1; i < std::min(it.candidates.size(), kAlternatives + 1); ++i) {
    const Candidate& other = it.candidates[i];
    items += fmt::format("<li>{}: {} ({:.0f} %). {}</li>\n", html(other.who), html(words_of_reason(other.reason)),
                         100 * other.confidence, html(other.doing));
  }
  for (const Claim& claim : it.claims)
    if (claim.stance == "differs")
      items += fmt::format("<li>what contradicts the answer, {}: {}</li>\n", html(claim.source), html(claim.text));
  std::string collect = it.collect;
  const CauseRow* const row = row_of(it.attempt->cause);
  if (collect.empty() && row != nullptr && !is_sure(it)) collect = row->collect;
  std::string text;
  if (!at_fault(it).empty() && it.candidates.empty())
    text +=
        "<h2>How sure</h2>\n<p>ms-driver judged by its own rules: no flight recorder or other source was kept.</p>\n";
  if (!items.empty()) text += "<h2>What else it may be</h2>\n<ol>\n" + items + "</ol>\n";
  if (!collect.empty()) text += fmt::format("<h2>What would tell more</h2>\n<p>Look at {}.</p>\n", html(collect));
  return text;
}

// Ranks that do the same share a line, the fewest first: they stand out.
std::string ranks_html(const Incident& it) {
  if (it.ranks.empty()) return "";
  constexpr std::size_t kGroups = 12;
  const auto where = [](const RankLook& rank) {
    return rank.stack.substr(0, std::min(rank.stack.find('\n'), std::size_t{120}));
  };
  std::map<std::string, std::vector<const RankLook*>> alike;
  for (const RankLook& rank : it.ranks) {
    const std::size_t digits = rank.doing.find_first_of(',');
    alike[rank.doing.substr(0, digits) + " " + where(rank)].push_back(&rank);
  }
  std::vector<std::vector<const RankLook*>> groups;
  for (auto& [key, ranks] : alike) groups.push_back(std::move(ranks));
  // Stopped ranks come first, and a process that is no rank, a launcher's shell, last.
  std::ranges::stable_sort(groups, {}, [](const auto& ranks) {
    const RankLook& one = *ranks.front();
    return std::tuple(one.rank < 0, !one.doing.starts_with("state T"), ranks.size());
  });
  std::string text = "<h2>What each rank was doing</h2>\n";
  for (std::size_t i = 0; i < std::min(groups.size(), kGroups); ++i) {
    const RankLook& one = *groups[i].front();
    std::vector<std::string> names;
    for (const RankLook* rank : groups[i]) {
      if (names.size() == 8) {
        names.push_back(fmt::format("and {} more", groups[i].size() - 8));
        break;
      }
      names.push_back(rank->rank < 0 ? fmt::format("({})", rank->node)
                                     : fmt::format("{} ({})", rank->rank, rank->node));
    }
    text += fmt::format("<details{}><summary>{} {}: {}</summary>\n<pre>", i == 0 ? " open" : "",
                        one.rank < 0            ? "no rank"
                        : groups[i].size() == 1 ? "rank"
                                                : "ranks",
                        html(fmt::format("{}", fmt::join(names, ", "))), html(one.doing));
    for (const std::string& line : split(one.stack, '\n')) text += page_text(line, 300) + "\n";
    text += "</pre></details>\n";
  }
  return text;
}

std::string incident_html(const Ledger& ledger, const Incident& it, double now_s) {
  std::string text =
      answer_html(ledger, it) + moments_html(it, now_s) + claims_html(it) + alternatives_html(it) + ranks_html(it);
  for (const std::string& file : it.unread) text += fmt::format("<p class=\"bad\">not read: {}</p>\n", html(file));
  return text;
}

std::string title_of(const Incident& it) {
  return fmt::format("Incident in attempt {}: last progress {} {} UTC, noticed {}", it.attempt->number,
                     utc_text(it.fault_s).substr(0, 10), clock_text(it.fault_s), clock_text(it.alarm_s));
}

std::string outcome_html(const Ledger& ledger) {
  if (ledger.attempts.empty()) return "No attempt has begun.";
  const AttemptEntry& last = ledger.attempts.back();
  if (last.ended_s == 0) return "The run continues.";
  if (last.cause != "done") return fmt::format("The run has ended: {}.", html(words_of(last)));
  return last.to_step < 0 ? "The run is done." : fmt::format("The run is done, after training step {}.", last.to_step);
}

std::string attempts_html(const Ledger& ledger) {
  std::string text =
      "<h2>All attempts</h2>\n<table class=\"text\">\n<tr><th>attempt</th><th>began</th><th>nodes</th>"
      "<th>training steps</th><th>ended by</th><th>why</th></tr>\n";
  for (const AttemptEntry& a : ledger.attempts)
    text += fmt::format(
        "<tr><td>{}</td><td class=\"short\">{}</td><td>{}</td><td class=\"short\">{}</td><td "
        "class=\"short\">{}</td><td>{}</td></tr>\n",
        a.number, utc_text(a.began_s), html(slurm::fold_hostlist(a.nodes)),
        a.from_step < 0 ? "-"
        : a.to_step < 0 ? fmt::format("from {}", a.from_step)
                        : fmt::format("{} to {}", a.from_step, a.to_step),
        a.ended_s == 0 ? "(runs)" : html(a.cause), html(a.why));
  text += "</table>\n";
  for (const auto& [node, why] : ledger.excluded)
    text += fmt::format("<p>{} is left out: {}</p>\n", html(node), html(why));
  return text;
}

}  // namespace

std::string incident_page(const Ledger& ledger, const std::vector<Incident>& incidents, const std::string& name,
                          double now_s) {
  const double last_s =
      ledger.attempts.empty() || ledger.attempts.back().ended_s == 0 ? now_s : ledger.attempts.back().ended_s;
  std::string body = fmt::format(
      "<h1>{}</h1>\n<p><b>{}</b></p>\n<p class=\"quiet\">{} in {}. Useful training time: {:.1f} %, the rest is start, "
      "faults and repeated steps. Written {}.</p>\n",
      html(name), outcome_html(ledger), plural(ledger.attempts.size(), "attempt"),
      format_duration(std::max(0.0, last_s - ledger.began_s)), 100 * time_spent(ledger, last_s).effective(),
      utc_text(now_s));
  if (incidents.empty()) body += "<p>Nothing broke: no attempt ended other than well.</p>\n";
  for (std::size_t i = 0; i < incidents.size(); ++i) {
    const std::string text = incident_html(ledger, incidents[i], now_s);
    const std::string title = html(title_of(incidents[i]));
    body += i == 0 ? fmt::format("<h2>{}</h2>\n{}", title, text)
                   : fmt::format("<details><summary>Before that: {}: {}</summary>\n{}</details>\n", title,
                                 html(words_of(*incidents[i].attempt)), text);
  }
  body += attempts_html(ledger);
  return html_page({.title = name, .body = std::move(body), .styles = {&kIncidentStyle}});
}

}  // namespace driver
}  // namespace ms
