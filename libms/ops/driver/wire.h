// The protocol: what the driver, its agents and those who ask it something say to each other: lines of JSON. A
// connection begins with a proof of both ends (credential.h): the driver says a nonce; the other end seals it with the
// address that it connected to, its role and its own nonce; the driver seals that nonce, its address and a key, by
// which both protect all later lines (link/channel.h). Whoever relays the proof to another driver has another address.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "link/channel.h"
#include "net/measure/tcp_loss.h"

namespace ms::driver {

inline constexpr std::size_t kMostLosses = 32;
inline constexpr std::size_t kMaxGreeting_bytes = 4096, kMaxLine_bytes = std::size_t{1} << 20;

// The section of ranks whose heartbeats name none.
inline constexpr std::string_view kUnnamedSection = "loop";

struct Greeting {
  std::string role;  // agent_role(), "client"
  std::string node;  // of an agent
  std::string nonce;
  std::string credential;
};
// Names the job: the port of its driver may be that of another job's by now, whose nodes it may share.
std::string agent_role(int job);
// The texts that are sealed.
std::string joiner_text(const Greeting& greeting, const std::string& nonce, const link::Address& driver);
// Without the key, which follows it.
std::string driver_text(const std::string& nonce, const link::Address& driver);

// One rank, as its agent knows it.
struct RankState {
  int rank = -1;
  int pid = 0;
  bool alive = true;
  char state = '?';        // as in /proc/PID/stat
  std::int64_t step = -1;  // steps done
  std::string section;
  double section_s = 0;  // since when it is in the section
  double cpu = 0;        // processors that it took since the report before
  std::map<std::string, double> numbers = {};
};

// An agent's report, several times a second.
struct Report {
  std::int64_t number = 0;
  int attempt = -1;  // that the ranks belong to
  std::vector<RankState> ranks = {};
  std::map<std::string, double> took = {};  // sections that ended since the report before: the longest time of each
  std::int64_t segments = 0;                // that TCP sent to other nodes in the last seconds
  std::vector<net::PeerLoss> losses = {};   // of them, to peers that were sent some again: the worst kMostLosses
  std::vector<std::string> addresses = {};  // of the node; only in the first report
  std::string unheard = {};                 // why no heartbeat can be heard there; only in the first report
  std::string finding = {};                 // what ms-diag finds critical on the node; empty: nothing
  double clock_jump_s = 0;                  // of the node's wall clock since the report before
};

// One task's state, asked for when a run hangs.
struct TaskEvidence {
  int rank = -1;
  int pid = 0;
  char state = '?';
  double cpu = 0;        // processors that it takes where there are enough of them; negative: not known
  std::string waits_in;  // the kernel's word for it
  std::string stack;     // of its threads, as far as one may look
};

// Orders to an agent, and its answers.
struct Order {
  std::string what;  // "kill", "look", "quit"
  int attempt = -1;  // whose tasks
  bool ras = false;  // a look asks NCCL's RAS, too
};
struct Answer {
  std::string to;  // the order's `what`
  int attempt = -1;
  int count = 0;  // tasks killed
  std::vector<TaskEvidence> tasks = {};
};

std::string to_json(const Greeting& greeting);
std::string to_json(const Report& report);
std::string to_json(const Order& order);
std::string to_json(const Answer& answer);
// A line of an agent: one of the two.
struct AgentSays {
  std::optional<Report> report;
  std::optional<Answer> answer;
};
// Throw Error("driver.wire", peer).
Greeting read_greeting(const std::string& line);
AgentSays read_agent(const std::string& line);
Order read_order(const std::string& line);

}  // namespace ms::driver
