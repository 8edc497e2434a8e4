// The words of scontrol and squeue. A field of a node begins at " Key=" for a key in the list below; values may hold
// spaces, so a key counts only where it comes first.
#include "slurm/records.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/number.h"
#include "base/text.h"

namespace ms::slurm {
namespace {

// Keys of the free texts by administrators that come behind every field that we read, in this order (Features have no
// spaces).
constexpr std::string_view kReasonKey = " Reason=";
constexpr std::array<std::string_view, 7> kBehindReason = {
    " Comment=", " Extra=", " InstanceId=", " ReservationName=", " TLSCertTokenSet=", " Topology=", " Parameters="};

constexpr char kFieldEnd = '\x1f';
constexpr char kRowEnd = '\x1e';

template <class Number>
Number to_number(std::string_view text) {
  return leading_number<Number>(text).value_or(0);
}

std::string without_null(std::string_view text) {
  return text == "(null)" || text == "n/a" || text == "N/A" ? std::string{} : std::string{text};
}

// The value of a field whose value has no spaces. `line` begins with a space.
std::string word_field(std::string_view line, std::string_view key) {
  const std::string wanted = fmt::format(" {}=", key);
  const std::size_t at = line.find(wanted);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + wanted.size());
  return without_null(line.substr(0, line.find(' ')));
}

bool is_state_char(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }

std::vector<std::string> parse_states(std::string_view text) {
  std::vector<std::string> states = split(text, '+');
  for (std::string& state : states) std::erase_if(state, [](char c) { return !is_state_char(c); });
  std::erase(states, "");
  return states;
}

// "root@2026-11-21T11:45:00", also with "Unknown" as the time
bool is_signature(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos || at == 0 || text.find(' ') != std::string_view::npos) return false;
  const std::string_view time = text.substr(at + 1);
  return time == "Unknown" || (time.size() == 19 && time[4] == '-' && time[10] == 'T' && time[13] == ':');
}

// "2026-11-21T11:45:00" in local time; 0: not known.
double wall_s_of(std::string_view text) {
  std::tm local{};
  local.tm_isdst = -1;
  const char* const end = ::strptime(std::string(text).c_str(), "%Y-%m-%dT%H:%M:%S", &local);
  return end == nullptr ? 0 : static_cast<double>(std::max<std::time_t>(0, std::mktime(&local)));
}

void read_reason(std::string_view text, Node& node) {
  std::size_t end = text.size();
  for (std::string_view key : kBehindReason) end = std::min(end, text.find(key));
  text = trim(text.substr(0, end));
  const std::size_t open = text.rfind('[');
  if (open != std::string_view::npos && text.back() == ']') {
    const std::string_view signature = text.substr(open + 1, text.size() - open - 2);
    if (is_signature(signature)) {
      node.reason_user = signature.substr(0, signature.find('@'));
      node.reason_wall_s = wall_s_of(signature.substr(signature.find('@') + 1));
      text = trim(text.substr(0, open));
    }
  }
  node.reason = text;
}

Node parse_node(const std::string& line) {
  Node node;
  const std::size_t reason = line.find(kReasonKey);
  // Behind the partitions there is free text in every version.
  const std::string_view fields = std::string_view(line).substr(0, std::min(line.find(" Partitions="), reason));
  node.name = word_field(fields, "NodeName");
  node.host = word_field(fields, "NodeHostName");
  node.address = word_field(fields, "NodeAddr");
  node.port = to_number<int>(word_field(fields, "Port"));
  if (const std::string weight = word_field(fields, "Weight"); !weight.empty())
    node.weight = to_number<std::uint32_t>(weight);
  const std::string version = word_field(fields, "Version");  // "24.11.5"
  node.slurm_year = to_number<int>(version.substr(0, version.find('.')));
  node.states = parse_states(word_field(fields, "State"));
  if (fields.size() < line.size() && fields.size() != reason)
    node.partitions = split(word_field(std::string_view(line).substr(fields.size()), "Partitions"), ',');
  if (reason != std::string::npos) read_reason(std::string_view(line).substr(reason + kReasonKey.size()), node);
  return node;
}

// One list is both the question and how the answer is read: a column is a name for squeue and where its text goes.
struct JobColumn {
  std::string_view name;
  void (*read)(std::string_view, Job&);
};

constexpr std::array<JobColumn, 9> kColumns = {{
    {"%A", [](std::string_view text, Job& job) { job.id = to_number<std::uint32_t>(text); }},
    {"%F", [](std::string_view text, Job& job) { job.array_id = to_number<std::uint32_t>(text); }},
    {"%K",
     [](std::string_view text, Job& job) {
       // "N/A" for a job that is no task, "1-3,9" for the tasks of an array that have not started.
       const bool one_task = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
       if (one_task) job.array_task = to_number<std::uint32_t>(text);
       if (!one_task) job.array_id = 0;
     }},
    {"%U", [](std::string_view text, Job& job) { job.user_id = to_number<std::uint32_t>(text); }},
    {"%Q", [](std::string_view text, Job& job) { job.priority = to_number<std::uint64_t>(text); }},
    {"%T", [](std::string_view text, Job& job) { job.state = text; }},
    {"%N", [](std::string_view text, Job& job) { job.nodes = without_null(text); }},
    {"%x", [](std::string_view text, Job& job) { job.excluded_nodes = without_null(text); }},
    {"%r", [](std::string_view text, Job& job) { job.reason = text == "None" ? "" : text; }},
}};
constexpr std::array<JobColumn, 6> kLongColumns = {{
    {"JobID", [](std::string_view text, Job& job) { job.id = to_number<std::uint32_t>(text); }},
    // 2 after a launch that Slurm tries again.
    {"BatchFlag", [](std::string_view text, Job& job) { job.batch = text == "1" || text == "2"; }},
    {"Requeue", [](std::string_view text, Job& job) { job.requeue = text == "1"; }},
    {"RestartCnt", [](std::string_view text, Job& job) { job.restarts = to_number<int>(text); }},
    {"HetJobID", [](std::string_view text, Job& job) { job.het_leader = to_number<std::uint32_t>(text); }},
    {"admin_comment", [](std::string_view text, Job& job) { job.admin_comment = without_null(text); }},
}};

std::vector<std::string_view> cut(std::string_view text, char end) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find(end); at != std::string_view::npos; at = text.find(end)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  return parts;
}

// The job of a row, on top of what is known of it; nullopt: the row has another shape, or does not begin with a number
// as Slurm writes it.
template <std::size_t N>
std::optional<Job> read_cells(std::string_view row, const std::array<JobColumn, N>& columns, Job job) {
  if (!row.empty() && row.front() == '\n') row.remove_prefix(1);
  const std::vector<std::string_view> cells = cut(row, kFieldEnd);
  if (cells.size() != N) return std::nullopt;
  for (std::size_t i = 0; i < N; ++i) columns[i].read(cells[i], job);
  if (cells.front() != std::to_string(job.id)) return std::nullopt;
  return job;
}

// Fills `job` from the row that begins with its number; a row of another shape is not read.
template <std::size_t N>
bool read_row(std::string_view answer, const std::array<JobColumn, N>& columns, std::uint32_t id, Job& job) {
  for (const std::string_view row : cut(answer, kRowEnd)) {
    const std::optional<Job> read = read_cells(row, columns, job);
    if (!read || read->id != id) continue;
    job = *read;
    return true;
  }
  return false;
}

}  // namespace

bool Node::has_state(std::string_view state) const {
  return std::find(states.begin(), states.end(), state) != states.end();
}

std::string Job::reference() const {
  return array_id == 0 ? std::to_string(id) : fmt::format("{}_{}", array_id, array_task);
}

bool Job::runs() const {
  constexpr std::array<std::string_view, 7> kRunning = {"RUNNING",  "CONFIGURING", "SUSPENDED", "STOPPED",
                                                        "RESIZING", "SIGNALING",   "STAGE_OUT"};
  return std::find(kRunning.begin(), kRunning.end(), state) != kRunning.end();
}

bool Job::pending() const {
  constexpr std::array<std::string_view, 4> kPending = {"PENDING", "REQUEUE_HOLD", "REQUEUED", kExpediting};
  return std::find(kPending.begin(), kPending.end(), state) != kPending.end();
}

bool Job::held() const { return priority == 0 && !runs(); }

int number_of(const Config& config, std::string_view key, int otherwise) {
  const auto found = config.find(key);
  return found == config.end() ? otherwise : leading_number<int>(found->second).value_or(otherwise);
}

Config parse_config(std::string_view text) {
  Config config;
  for (const std::string& line : split(text, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    // The first of a name: sections of plugins and of cgroup.conf come behind slurm.conf's.
    config.emplace(trim(std::string_view(line).substr(0, equals)),
                   without_null(trim(std::string_view(line).substr(equals + 1))));
  }
  return config;
}

std::vector<Node> parse_nodes(std::string_view text) {
  std::vector<Node> nodes;
  for (const std::string& line : split(text, '\n')) {
    if (!line.starts_with("NodeName=")) continue;
    Node node = parse_node(" " + line);
    if (!node.name.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<std::string> parse_outputs(std::string_view text) {
  std::vector<std::string> paths;
  for (const std::string_view key : {"StdOut=", "StdErr="}) {
    for (const std::string& line : split(text, '\n')) {
      const std::string_view field = trim(line);
      if (!field.starts_with(key) || field == key) continue;
      const std::string_view path = field.substr(key.size());
      if (std::ranges::find(paths, path) == paths.end()) paths.emplace_back(path);
    }
  }
  return paths;
}

std::optional<Partition> parse_partition(std::string_view text, std::string_view name) {
  for (const std::string& line : split(text, '\n')) {
    const std::string fields = " " + line;
    if (word_field(fields, "PartitionName") != name) continue;
    // NodeSets=, which administrators write too, may come before it, but never as " Nodes=".
    return Partition{.name = std::string(name), .nodes = word_field(fields, "Nodes")};
  }
  return std::nullopt;
}

std::string job_format() {
  std::string format;
  for (const JobColumn& column : kColumns) format += fmt::format("{}{}", column.name, kFieldEnd);
  return format + kRowEnd;
}

std::string job_long_format() {
  std::vector<std::string> fields;
  for (const JobColumn& column : kLongColumns) fields.push_back(fmt::format("{}:{}", column.name, kFieldEnd));
  return fmt::format("{}{}", fmt::join(fields, ","), kRowEnd);
}

std::optional<std::vector<Job>> parse_jobs(std::string_view answer) {
  std::vector<Job> jobs;
  if (!trim(answer.substr(answer.rfind(kRowEnd) + 1)).empty()) return std::nullopt;  // npos + 1 is 0
  for (const std::string_view row : cut(answer, kRowEnd)) {
    if (trim(row).empty()) continue;
    std::optional<Job> job = read_cells(row, kColumns, Job{});
    if (!job) return std::nullopt;
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

std::optional<double> parse_time_s(std::string_view text) {
  double days = 0, seconds = 0;
  if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
    days = to_number<double>(text.substr(0, dash));
    text.remove_prefix(dash + 1);
  }
  if (text.empty() || text.find_first_not_of("0123456789:") != std::string_view::npos) return std::nullopt;
  for (const std::string& part : split(text, ':')) seconds = seconds * 60 + to_number<double>(part);
  return days * 86'400 + seconds;
}

namespace {

constexpr double kNoLimit_s = std::numeric_limits<double>::infinity();

std::string rows_of(std::initializer_list<std::string_view> fields) {
  std::vector<std::string> columns;
  for (const std::string_view field : fields) columns.push_back(fmt::format("{}:{}", field, kFieldEnd));
  return fmt::format("{}{}", fmt::join(columns, ","), kRowEnd);
}

// Reads every row; nullopt: one is cut off, or has another number of cells.
template <class Row>
std::optional<std::vector<Row>> read_rows(std::string_view answer, std::size_t columns,
                                          Row (*read)(const std::vector<std::string_view>&)) {
  std::vector<Row> rows;
  if (!trim(answer.substr(answer.rfind(kRowEnd) + 1)).empty()) return std::nullopt;
  for (const std::string_view row : cut(answer, kRowEnd)) {
    if (trim(row).empty()) continue;
    const std::vector<std::string_view> cells = cut(row, kFieldEnd);
    if (cells.size() != columns) return std::nullopt;
    rows.push_back(read(cells));
  }
  return rows;
}

}  // namespace

std::string wait_format() { return rows_of({"JobID", "RestartCnt", "PendingTime", "TimeLeft"}); }

std::optional<std::vector<Wait>> parse_waits(std::string_view answer) {
  return read_rows<Wait>(answer, 4, [](const std::vector<std::string_view>& cells) {
    return Wait{.id = to_number<std::uint32_t>(trim(cells[0])),
                .restarts = to_number<int>(cells[1]),
                .seconds = to_number<double>(cells[2]),
                .left_s = parse_time_s(cells[3]).value_or(kNoLimit_s)};
  });
}

std::string request_format() { return rows_of({"JobID", "NumNodes", "TimeLimit", "ReqNodes", "Feature", "HetJobID"}); }

std::optional<std::vector<Request>> parse_requests(std::string_view answer) {
  return read_rows<Request>(answer, 6, [](const std::vector<std::string_view>& cells) {
    return Request{.id = to_number<std::uint32_t>(trim(cells[0])),
                   .nodes = std::max(1, to_number<int>(cells[1])),
                   .limit_s = parse_time_s(cells[2]).value_or(kNoLimit_s),
                   .any_nodes = without_null(cells[3]).empty() && without_null(cells[4]).empty() &&
                                to_number<std::uint32_t>(cells[5]) == 0};
  });
}

std::optional<Job> parse_job(std::string_view answer, std::string_view long_answer, std::uint32_t id) {
  Job job;
  if (!read_row(answer, kColumns, id, job) || !read_row(long_answer, kLongColumns, id, job)) return std::nullopt;
  return job;
}

}  // namespace ms::slurm
