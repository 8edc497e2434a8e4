// Helpers of the checkpoint benchmarks: clocks, ranks as threads, and reference measurements of the system.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "tensor/stream.h"
#include "train/plan.h"

namespace ms::bench {

double now_s();
double time_of(const std::function<void()>& work);
double median(std::vector<double> values);  // 0 if empty

// Runs body on every rank of the settings' mesh, ranks as threads of this process on all its cores. An exception ends
// the program.
using Body = std::function<void(const train::Plan&, comm::World&, tensor::Device&)>;
void on_ranks(const train::Settings& settings, const Body& body);

// Seconds that dd takes to write so many bytes and have them on the disk, over a file of that size if there is one (a
// disk that is handed out as it is first written is slow once); and to read a file.
double dd_write_s(const std::string& file, std::int64_t bytes);
double dd_read_s(const std::string& file);
void drop_from_cache(const std::string& file);

}  // namespace ms::bench
