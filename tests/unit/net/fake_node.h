// A node's /sys as files below a temporary directory: adapters mlx5_0 .. with one port and one interface each (ens0
// ..), and eth0.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/sysroot.h"

namespace ms::net::test {

class FakeNode {
 public:
  explicit FakeNode(int adapters) {
    static int number = 0;
    root_ = std::filesystem::path(testing::TempDir()) /
            ("netcheck-node-" + std::to_string(getpid()) + "-" + std::to_string(number++));
    for (int i = 0; i < adapters; ++i) {
      const std::string device = "mlx5_" + std::to_string(i), interface = "ens" + std::to_string(i);
      const std::string port = "sys/class/infiniband/" + device + "/ports/1/";
      write(port + "state", "4: ACTIVE\n");
      write(port + "link_layer", "Ethernet\n");
      write(port + "rate", "400 Gb/sec (4X NDR)\n");
      for (const std::string_view name : kCounters) write(port + "counters/" + std::string(name), "0\n");
      for (const std::string_view name : kHwCounters) write(port + "hw_counters/" + std::string(name), "0\n");
      write(port + "counters/port_rcv_data", "123456789\n");
      write(port + "hw_counters/lifespan", "12\n");
      gid(i, 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1");
      gid(i, 1, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2");
      gid(i, 2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1");
      gid(i, 3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2");
      gid(i, 4, "0000:0000:0000:0000:0000:0000:0000:0000", "");
      write("sys/class/infiniband/" + device + "/device/net/" + interface + "/mtu", "9000\n");
      write("sys/class/infiniband/" + device + "/tc/1/traffic_class", "Global tclass=106\n");
      add_interface(interface, 9000, 400000);
      for (const char* priority : {"0", "3"}) {
        write("sys/class/net/" + interface + "/ecn/roce_np/enable/" + priority, "1\n");
        write("sys/class/net/" + interface + "/ecn/roce_rp/enable/" + priority, "1\n");
      }
    }
    add_interface("eth0", 1500, 25000);
    write("sys/class/net/lo/carrier_down_count", "0\n");
  }
  ~FakeNode() { std::filesystem::remove_all(root_); }
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  Sysroot root() const { return Sysroot(root_.string()); }
  std::string path() const { return root_.string(); }
  void write(const std::string& path, std::string_view text) {
    const std::filesystem::path whole = root_ / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void gid(int adapter, int index, std::string_view gid, std::string_view type) {
    const std::string port = "sys/class/infiniband/mlx5_" + std::to_string(adapter) + "/ports/1/";
    write(port + "gids/" + std::to_string(index), std::string(gid) + "\n");
    if (!type.empty()) write(port + "gid_attrs/types/" + std::to_string(index), std::string(type) + "\n");
  }
  void count(const std::string& port, std::string_view name, std::int64_t value) {
    const std::string file = file_of(port, name);
    std::filesystem::remove_all(root_ / file);
    write(file, std::to_string(value) + "\n");
  }
  void refuse(const std::string& port, std::string_view name) {
    std::filesystem::remove_all(root_ / file_of(port, name));
    std::filesystem::create_directories(root_ / file_of(port, name));
  }
  void remove(const std::string& port, std::string_view name) {
    std::filesystem::remove_all(root_ / file_of(port, name));
  }

  static bool is_adapter_counter(std::string_view name) {
    return std::ranges::find(kCounters, name) != kCounters.end() ||
           std::ranges::find(kHwCounters, name) != kHwCounters.end();
  }
  static bool has(std::string_view name) {
    return is_adapter_counter(name) || name == "carrier_down_count" ||
           std::ranges::find(kStatistics, name) != kStatistics.end();
  }

 private:
  static constexpr std::array<std::string_view, 12> kCounters{"link_downed",
                                                              "link_error_recovery",
                                                              "symbol_error",
                                                              "local_link_integrity_errors",
                                                              "excessive_buffer_overrun_errors",
                                                              "port_rcv_errors",
                                                              "port_rcv_remote_physical_errors",
                                                              "port_rcv_switch_relay_errors",
                                                              "port_rcv_constraint_errors",
                                                              "port_xmit_constraint_errors",
                                                              "port_xmit_discards",
                                                              "VL15_dropped"};
  static constexpr std::array<std::string_view, 22> kHwCounters{"out_of_sequence",
                                                                "packet_seq_err",
                                                                "implied_nak_seq_err",
                                                                "out_of_buffer",
                                                                "rnr_nak_retry_err",
                                                                "local_ack_timeout_err",
                                                                "req_transport_retries_exceeded",
                                                                "req_rnr_retries_exceeded",
                                                                "req_cqe_error",
                                                                "resp_cqe_error",
                                                                "req_remote_access_errors",
                                                                "req_remote_invalid_request",
                                                                "resp_local_length_error",
                                                                "resp_remote_access_errors",
                                                                "rx_icrc_encapsulated",
                                                                "roce_adp_retrans",
                                                                "roce_adp_retrans_to",
                                                                "roce_slow_restart",
                                                                "rp_cnp_ignored",
                                                                "rp_cnp_handled",
                                                                "np_ecn_marked_roce_packets",
                                                                "duplicate_request"};
  static constexpr std::array<std::string_view, 8> kStatistics{
      "rx_errors",     "tx_errors",       "rx_dropped",       "tx_dropped",
      "rx_crc_errors", "rx_frame_errors", "rx_missed_errors", "tx_carrier_errors"};

  static std::string file_of(const std::string& port, std::string_view name) {
    const std::string file(name);
    const std::size_t slash = port.find('/');
    if (slash == std::string::npos)
      return "sys/class/net/" + port + (name == "carrier_down_count" ? "/" : "/statistics/") + file;
    const bool is_hw = std::ranges::find(kHwCounters, name) != kHwCounters.end();
    return "sys/class/infiniband/" + port.substr(0, slash) + "/ports/" + port.substr(slash + 1) +
           (is_hw ? "/hw_counters/" : "/counters/") + file;
  }
  void add_interface(const std::string& name, int mtu, int speed) {
    const std::string directory = "sys/class/net/" + name + "/";
    write(directory + "mtu", std::to_string(mtu) + "\n");
    write(directory + "speed", std::to_string(speed) + "\n");
    write(directory + "operstate", "up\n");
    write(directory + "carrier_down_count", "0\n");
    write(directory + "device/vendor", "0x15b3\n");
    for (const std::string_view file : kStatistics) write(directory + "statistics/" + std::string(file), "0\n");
  }

  std::filesystem::path root_;
};

}  // namespace ms::net::test
