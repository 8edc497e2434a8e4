// Reports on a check of the fabric, for people, monitors and programs. Pure functions of results.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/finding.h"
#include "link/acceptor.h"
#include "net/judge/locate.h"
#include "net/measure/workers.h"

namespace ms::net {

struct Checked {
  std::string command = {};               // "pairs", "locate"
  std::vector<std::string> nodes = {};    // that took part; results and faults have their indices
  Layout layout = {};                     // of the nodes
  std::vector<std::string> missing = {};  // nodes that did not take part
  std::string why_missing = {};           // what the launcher said of it
  std::vector<PairResult> results = {};
  std::vector<Fault> faults = {};
  std::vector<int> healthy = {};
  std::vector<std::string> not_run = {};                              // what could not be tried here, and why
  std::vector<std::string> remarks = {};                              // what cannot be told
  std::map<std::string, link::Unauthenticated> unauthenticated = {};  // by where they connected, see workers.h
  std::optional<Workers::Undecided> undecided = {};
  std::int64_t untested_pairs = 0;
  std::int64_t not_judged = 0;  // ways and pairs that looked bad without telling of the network: `remarks` says why
  int rounds = 0;
  double seconds = 0;
};

// The codes of findings about the fabric, one for each symptom; for the manual.
struct Code {
  std::string_view code;
  std::string_view summary;
};
const std::vector<Code>& codes();

// "n3", "n3 -> *", "* -> n3", "switch s1", "n2 - n5", "n2 -> n5".
std::string who(const Checked& checked, const Culprit& culprit);
std::string evidence(const Checked& checked, const Fault& fault);
std::vector<std::string> nodes_of(const Checked& checked, const Culprit& culprit);
std::string why_absent(const Checked& checked);
// "1000 connections to n2 without the secret of this check".
std::string unauthenticated_text(const std::string& at, const link::Unauthenticated& unauthenticated);
// The unauthenticated that took all room at one of these places, or around what is silent; empty: none did.
std::string crowd_at(const Checked& checked, const std::vector<std::string>& places);
std::string crowd_around(const Checked& checked, const Fault& fault);
std::vector<Finding> findings(const Checked& checked);

// Nagios: 2 where a node, switch, link or direction is at fault, 1 where only flaps were seen, 3 where nothing could be
// measured.
int nagios_status(const Checked& checked);

// Returns 2 if a finding is critical, 1 if one is a warning, else 0.
int worst_status(const std::vector<Finding>& findings);
// The findings of a command that measures nothing between nodes; `what` names the thing that it inspected.
std::string findings_text(const std::vector<Finding>& findings, const std::string& what,
                          const std::vector<std::string>& not_run);

std::string as_text(const Checked& checked);
std::string as_nagios(const Checked& checked);
std::string as_prometheus(const Checked& checked);
// Gbit/s from every node (rows) to every node; "-" where nothing was measured. Up to so many nodes, else empty.
inline constexpr int kMostInTable = 32;
std::string matrix_text(const Checked& checked);

// JSON documents.
std::string as_json(const Checked& checked);
std::string findings_json(const std::string& command, const std::vector<Finding>& findings,
                          const std::vector<std::string>& not_run);

// The document of a command that could not run here: JSON, else one line of text.
std::string not_run(const std::string& command, const std::string& why, bool json);

// An HTML page with a heat map of what every way carries, and one of latencies; no scripts, nothing from elsewhere.
std::string as_html(const Checked& checked);

}  // namespace ms::net
