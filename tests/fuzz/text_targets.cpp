// Parsers of text that a person or another program wrote: configurations, JSON, what Slurm and the kernel say, the
// wire.
#include <algorithm>
#include <sstream>

#include "base/config.h"
#include "base/escape.h"
#include "base/json.h"
#include "base/toml_syntax.h"
#include "data/chat.h"
#include "data/json_lines.h"
#include "health/evidence/kernel_log.h"
#include "health/run/result_wire.h"
#include "net/agents/wire.h"
#include "net/judge/inspector_judge.h"
#include "net/judge/nccl_choices.h"
#include "net/measure/facts_json.h"
#include "slurm/hostfile.h"
#include "slurm/hostlist.h"
#include "slurm/records.h"
#include "slurm/topology.h"
#include "target.h"

namespace ms::fuzz {
namespace {

struct AllKinds {
  std::int64_t count = 1, size_bytes = 64 << 20;
  double rate = 0.5, timeout_s = 30;
  bool on = true;
  std::string name = "a", order = "plain";
  std::vector<std::string> list = {"x"};
};
constexpr Field<AllKinds> kFields[] = {
    {.key = "count", .member = &AllKinds::count, .doc = "A count.", .min = 0, .max = 1e6, .old_key = "number"},
    {.key = "size", .member = &AllKinds::size_bytes, .doc = "A size.", .unit = Unit::bytes, .min = 0},
    {.key = "rate", .member = &AllKinds::rate, .doc = "A rate."},
    {.key = "timeout", .member = &AllKinds::timeout_s, .doc = "A time.", .unit = Unit::seconds, .min = 0},
    {.key = "on", .member = &AllKinds::on, .doc = "A switch."},
    {.key = "name", .member = &AllKinds::name, .doc = "A name."},
    {.key = "order", .member = &AllKinds::order, .doc = "An order.", .choices = {"plain", "shuffled"}},
    {.key = "list", .member = &AllKinds::list, .doc = "A list."},
};

void bind(ConfigSchema& schema, AllKinds& config) {
  schema.section("a", "One section.", config, kFields);
  schema.section("a.b", "One below it.", config, kFields);
}

void toml(std::string_view text) {
  AllKinds config, again;
  ConfigSchema schema, second;
  bind(schema, config);
  schema.load_text(text, "fuzz");
  schema.set(text.substr(0, text.find('\n')));
  for (const ConfigProblem& problem : schema.problems()) safe_line(problem.str());
  if (!schema.problems().empty()) return;
  bind(second, again);
  second.load_text(schema.dump(true), "dump");
  if (utf8_bytes(config.name) != 0 || config.name.empty())
    expect(!second.problems().empty() || second.dump(false) == schema.dump(false), "a dump loads to the same values");
}

std::vector<std::string> toml_seeds() {
  AllKinds config;
  ConfigSchema schema;
  bind(schema, config);
  return {schema.dump(true),
          "[a]\ncount = 7 # a comment\nlist = [\"b\", 'c']\ntimeout = \"1h30m\"\nsize = \"64MiB\"\n",
          "a = {count = 0x1F, on = false, b = {rate = -1.5e-3, name = \"\\u00e9\"}}\n",
          "[[a]]\nname = \"\"\"\nlong\n\"\"\"\norder = '''x'''\nrate = nan\n",
          "a.b.count = 1_000\na.rate = inf\na.name = 1979-05-27T07:32:00Z\n",
          "a.size=12kB"};
}

void json(std::string_view text) {
  if (const std::optional<Json> value = Json::try_parse(text)) {
    expect(Json::parse(value->dump()).dump() == value->dump(), "JSON that is printed is the same");
    expect(Json::parse(safe_lines(value->dump(1))).dump_ascii() == value->dump_ascii(), "and escaped for a terminal");
  }
}

std::vector<std::string> json_seeds() {
  return {Json{{"a", 1}, {"b", Json{{"c", true}, {"d", nullptr}}}, {"e", std::vector<double>{1.5, -2e300}}}.dump(),
          "{\"\\u00e9\\ud83d\\ude80\": [18446744073709551615, -9223372036854775808, 1e400, []]}"};
}

// The text in a line, as a parser of whole documents sees it. That one knows no half surrogates, skips a byte order
// mark, takes a NUL for the end, and need not look at the first of two values of a key.
void chat(std::string_view text) {
  std::vector<data::ChatMessage> messages;
  if (const auto problem = data::read_chat(text, messages)) {
    expect(!problem->what.empty(), "a problem has words");
    safe_line(problem->what);
    return;
  }
  expect(std::ranges::find(messages, data::ChatRole::assistant, &data::ChatMessage::role) != messages.end(),
         "the assistant says something");
}
std::vector<std::string> chat_seeds() {
  return {
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
      R"({"system":"s","conversations":[{"from":"human","value":"caf\u00e9"},{"from":"gpt","value":""}]})",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":[{"type":"text","text":"c"}]}]})",
      R"({"messages":["a",null,{"role":"tool","content":[]}],"tools":[{}]})", "[[1]]"};
}

void json_lines(std::string_view text) {
  if (text.starts_with(data::kUtf8Bom) || text.find('\0') != std::string_view::npos) return;
  bool has_twice = false;
  data::json_form(text, "a.txt");
  const std::string padded = std::string(text) + std::string(data::JsonLine::kPadding, '\xff');
  const std::string_view line = std::string_view(padded).substr(0, text.size());
  std::string found;
  const auto problem = data::JsonLine({"text"}).read(line, found);
  if (problem) expect(!problem->what.empty() && problem->column.value_or(1) >= 1, "a problem has words");
  if (!problem) expect(found.empty() || utf8_bytes(found) > 0 || found[0] == '\0', "text is UTF-8");
  const std::optional<Json> value = Json::try_parse(
      text, {.max_depth = 32, .on_duplicate = [&](std::size_t, const std::string&) { has_twice = true; }, .keep = {}});
  if (value && value->is_object() && !has_twice) {
    const Json* const member = value->find("text");
    const bool has_text = member != nullptr && (member->is_string() || member->is_null());
    expect(has_text == !problem, "a line is read where a document is");
    if (has_text) expect(found == (member->is_null() ? "" : member->text()), "and gives the same text");
  }
  std::string other;
  data::JsonLine({"meta.body", "text"}).read(line, other);
}

std::vector<std::string> json_lines_seeds() {
  return {"{\"id\": 17, \"text\": \"caf\\u00e9 \\ud83d\\ude80\\n\", \"meta\": {\"body\": \"b\", \"x\": [1, {}]}}",
          "{\"text\": null}\n{\"text\": \"\\ud83d\"}\n", "{\"text\": \"a\", \"n\": [0, -1.5e-9, true, false]}\r"};
}

void escape(std::string_view text) {
  for (const std::string& safe : {safe_line(text), safe_lines(text), safe_html(text), safe_label(text)}) {
    for (std::size_t i = 0; i < safe.size(); i += utf8_bytes(std::string_view(safe).substr(i)))
      expect(utf8_bytes(std::string_view(safe).substr(i)) > 0, "escaped text is UTF-8");
    expect(
        std::ranges::none_of(safe, [](char c) { return (c < ' ' && c >= 0 && c != '\n' && c != '\t') || c == 0x7f; }),
        "escaped text has no controls");
  }
  expect(safe_line(text).find('\n') == std::string::npos, "a line stays a line");
  expect(safe_line(safe_line(text)) == safe_line(text), "escaped text is not escaped again");
}

std::vector<std::string> escape_seeds() { return {"a\x1b[2J\r\n\t\xc2\x9b\xe2\x80\xae\xff", "caf\xc3\xa9 <&\"'"}; }

void hostlist(std::string_view text) {
  const auto hosts = slurm::expand_hostlist(text);
  if (!hosts) return;
  const auto again = slurm::expand_hostlist(slurm::fold_hostlist(*hosts));
  expect(again.has_value(), "a folded list is a list");
  std::vector<std::string> a = *hosts, b = *again;
  for (auto* list : {&a, &b}) {
    std::ranges::sort(*list);
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  expect(a == b, "folding keeps the hosts");
}

std::vector<std::string> hostlist_seeds() {
  const std::vector<std::string> hosts = {"login", "node01", "node02", "node07", "r1n1", "r1n2"};
  return {slurm::fold_hostlist(hosts), "r[1-2]n[01-04,07]-ib", "a[0-999],b[7]"};
}

void topology(std::string_view text) {
  const slurm::Topology read = slurm::parse_topology(text, "fuzz");
  expect(read.depth() >= 0 && read.leaf_of.size() <= slurm::kMaxHosts, "a topology is bounded");
}

std::vector<std::string> topology_seeds() {
  return {
      "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[01,03]\nSwitchName=leaf2 Nodes=node[02,04]\n"
      "SwitchName=spine Level=1 Nodes=node[01-04] Switches=leaf[1-2]\n",
      "# a comment\nBlockName=b1 Nodes=n[1-2] BlockSize=2\nBlockSizes=2,4\n"};
}

void hostfile(std::string_view text) { slurm::parse_hostfile(text, "fuzz"); }
std::vector<std::string> hostfile_seeds() { return {"n1\nn2 slots=8 # gpu\nn[003-004]:2\n"}; }

void slurm_records(std::string_view text) {
  slurm::parse_config(text);
  slurm::parse_nodes(text);
  slurm::parse_outputs(text);
  const std::size_t middle = text.size() / 2;
  slurm::parse_job(text.substr(0, middle), text.substr(middle), 12);
}

std::vector<std::string> slurm_seeds() {
  return {
      "NodeName=n1 Arch=x86_64 State=IDLE+DRAIN* NodeHostName=n1.a Partitions=p Reason=bad disk "
      "[root@2026-11-21T11:45:00] Comment=x\n",
      "PrologFlags = Alloc\nTmpFS= (null)\n", "JobId=7 JobName=x\n   StdErr=/w/7.err\n   StdOut=/w/7.out\n",
      std::string("12\x1f"
                  "12\x1fN/A\x1f"
                  "1000\x1f"
                  "5\x1fRUNNING\x1fn[1-2]\x1f\x1fNone\x1f\x1e"
                  "12\x1f"
                  "1\x1f"
                  "1\x1f"
                  "0\x1fx\x1f\x1e")};
}

void kernel_log(std::string_view text) { health::parse_kernel_log(text); }
std::vector<std::string> kernel_log_seeds() {
  return {
      "6,339,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
      "3,340,5140901,c;EXT4-fs error\\x0a\n30,341,99,-;a program\n"};
}

void result_wire(std::string_view bytes) {
  if (const auto result = health::decode(bytes))
    expect(health::encode(*health::decode(health::encode(*result))) == health::encode(*result),
           "results survive the wire");
}
std::vector<std::string> result_seeds() {
  return {health::encode({.code = "gpu.ecc",
                          .outcome = health::Outcome::critical,
                          .note = "why",
                          .findings = {{.code = "gpu.ecc", .entity = "gpu 3", .message = "4 errors", .measured = 4}}})};
}

// One line is read as each kind of message.
void net_wire(std::string_view bytes) {
  const std::string line(bytes);
  const auto tried = [](auto read) {
    try {
      read();
    } catch (const Error&) {}  // a refusal
  };
  tried([&] { net::read_invitation(net::to_json(net::read_invitation(line))); });
  tried([&] { net::read_member(net::to_json(net::read_member(line))); });
  tried([&] { net::read_order(net::to_json(net::read_order(line))); });
  tried([&] {
    const net::TestAnswer answer = net::read_answer(line);
    expect(answer.result.error.find('\n') == std::string::npos, "an agent's words are one line");
  });
  tried(
      [&] { expect(net::read_facts(net::to_json(net::read_facts(line))) == net::read_facts(line), "facts are kept"); });
  tried([&] { net::read_snapshots(line); });
  tried([&] { net::read_snapshot(net::to_json(net::read_snapshot(line))); });
}

std::vector<std::string> net_seeds() {
  net::FabricFacts facts;
  facts.environment = {{"NCCL_IB_HCA", "mlx5"}};
  facts.interfaces["eth0"] = {.is_up = true, .mtu = 9000, .speed_mbps = 100000};
  facts.adapters["mlx5_0/1"] = {.state = "ACTIVE", .gids = {{.index = 3, .type = "RoCE v2"}}, .ecn_np = {{"3", true}}};
  net::Snapshot snapshot;
  snapshot.ports["eth0"].values = {{"rx_errors", 17}};
  return {net::to_json(net::Invitation{.addresses = {"10.0.0.1:4000"}, .secret = "s"}),
          net::to_json(net::Member{.node = "n1", .interface = "eth0", .mtu = 9000, .link_gbps = 100}),
          net::to_json(net::TestOrder{.id = 1, .address = "10.0.0.2:4000", .node = "n2"}),
          net::to_json(net::TestAnswer{.id = 1, .result = {.there = {.flow_gbps = {5, 6}}}, .text = "t"}),
          net::to_json(facts),
          net::to_json(snapshot),
          net::to_json(std::map<std::string, net::Snapshot>{{"n1", snapshot}})};
}

// Lines and XML of NCCL's, of which findings show some.
void nccl_log(std::string_view text) {
  std::istringstream first{std::string(text)}, in{std::string(text)};
  net::NcclLog log;
  log.find_attempts(first);
  log.read(in, "fuzz");
  for (const Finding& finding : net::judge_nccl(log).findings)
    expect(safe_line(finding.str()) == finding.str(), "a finding is safe to print");
}
void inspector(std::string_view text) {
  std::istringstream in{std::string(text)};
  net::InspectorLog log;
  log.read(in);
  for (const Finding& finding : net::judge_inspector(log).judged.findings)
    expect(safe_line(finding.str()) == finding.str(), "a finding is safe to print");
}
std::vector<std::string> inspector_seeds() {
  const auto record = [](int rank, const std::string& op) {
    return fmt::format(
        R"({{"header":{{"id":"0x1","rank":{},"n_ranks":2,"nnodes":2}},"metadata":{{"hostname":"n{}","pid":7}},{}}})"
        "\n",
        rank, rank, op);
  };
  const std::string coll =
      R"("coll_perf":{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":64,"coll_exec_time_us":50,)"
      R"("coll_timing_source":"kernel_gpu","coll_busbw_gbs":1.5})";
  const std::string p2p =
      R"("p2p_perf":{"p2p":"Send","p2p_sn":1,"p2p_peer":1,"p2p_msg_size_bytes":64,"p2p_exec_time_us":5,)"
      R"("p2p_timing_source":"kernel_gpu","p2p_busbw_gbs":1e3})";
  return {record(0, coll) + record(1, coll), record(0, p2p) + record(1, p2p) + "{\"header\":"};
}
std::vector<std::string> nccl_log_seeds() {
  return {
      "n1:7:8 [0] NCCL INFO comm 0x1 rank 0 nranks 16 cudaDev 0 commId 0xfeed - Init START\n"
      "n1:7:8 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 8, bw 20.0/20.0, type NVL/PIX, sameChannels 1\n"
      "n1:7:8 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0(3)/GDRDMA/Shared\n"
      "n1:7:8 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
      "n1:7:8 [0] net.cc:1 NCCL WARN failed\n"
      "n1:7:8 [0] NCCL INFO comm 0x2 rank 0 nranks 2 nvmlDev 0 busId 7000 parent 0x1 splitCount 1 color 3 key 0- Init "
      "START\n"
      "n1:7:8 [0] NCCL INFO + PCI[24.0] - GPU/0-7000 (0)\nn1:7:8 [0] NCCL INFO   + NVL[240.0] - GPU/0-8000\n"
      "n1:7:8 [0] NCCL INFO Channel 00 : 1[1] -> 2[0] via SHM/direct/direct\n",
      "[1,3]<stdout>:n1:7:8 [0] NCCL INFO AllReduce: opCount 29b count 256 datatype 7 op 0 root 0 comm 0x1 [nranks=2]\n"
      "\x1b[36m[default0]:n2:9:9 [0] NCCL INFO Reduce: opCount 29b count 1 datatype 7 op 0 root 1 comm 0x1 [nranks=2]\n"
      "n2:9:9 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>\n"
      "n2:9:9 [0] net.cc:1 NCCL WARN Got completion from peer 10.2.0.36<30152> with status=12 opcode=1 len=0 vendor "
      "err 129",
      "<system><gpu dev=\"0\" sm=\"90\"><nvlink count=\"2\"/></gpu><net name=\"a\" gdr=\"1\"/></system>",
      "<graphs><graph pattern=\"4\" nchannels=\"8\" typeintra=\"NVL\" typeinter=\"PIX\"/></graphs>"};
}

const Target kTargets[] = {
    {"toml",
     toml,
     toml_seeds,
     {"[a]", "[a.b]", "[[a]]", "count", "size", "rate", "timeout", "list", "order", "\"\"\"", "'''", "inf", "nan",
      "1e400", "\\u00e9", "\xff", "= {", "a.b.a.b"}},
    {"json", json, json_seeds, {"true", "null", "1e400", "\\u0000", "\\ud83d", "[[[[", "{\"a\":"}},
    {"chat",
     chat,
     chat_seeds,
     {"\"messages\":", "\"role\":", "\"content\":", "\"from\":", "\"value\":", "null", "[[[["}},
    {"json_lines",
     json_lines,
     json_lines_seeds,
     {"\"text\":", "\"meta\":", "\"body\":", "\\ud83d", "\\ude80", "\\u0000", "null", "}{", "[[[["}},
    {"escape", escape, escape_seeds, {"\x1b[2J", "\xc2\x9b", "\xe2\x80\xae", "\xff"}},
    {"hostlist", hostlist, hostlist_seeds, {"[0-65535]", "[01-10,12]", "node", "],["}},
    {"topology",
     topology,
     topology_seeds,
     {"SwitchName=", "Nodes=", "Switches=", "BlockName=", "[0-65535]", "LinkSpeed="}},
    {"hostfile", hostfile, hostfile_seeds, {"slots=", "[0-65535]", ":4096", "#"}},
    {"slurm",
     slurm_records,
     slurm_seeds,
     {"NodeName=", " State=", " Reason=", " Partitions=", "[root@", "\x1f", "\x1e"}},
    {"inspector", inspector, inspector_seeds, {"\"coll_perf\":", "\"p2p_perf\":", "e308", "\"n_ranks\":1048576"}},
    {"nccl_log", nccl_log, nccl_log_seeds, {"\x1b[2J", "NCCL WARN ", " via ", "99999999999", " nchannels=\""}},
    {"kernel_log", kernel_log, kernel_log_seeds, {",-;", "\\x0a", "NVRM: Xid", "\n "}},
    {"result_wire", result_wire, result_seeds, {"\xff\xff\xff\xff"}},
    {"net_wire", net_wire, net_seeds, {"5.5e48", "\"flow_gbps\":", "-1", "18446744073709551615", "\\u001b[2J", "[[[["}},
};

}  // namespace

std::span<const Target> text_targets() { return kTargets; }

}  // namespace ms::fuzz
