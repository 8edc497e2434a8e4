// The recorder of one rank, from its settings to its last word.
#pragma once

#include <memory>
#include <string>

#include "comm/world.h"
#include "trace/flusher.h"
#include "trace/recorder.h"
#include "train/plan.h"

namespace ms::train {

// Where a run's traces are; empty: it writes none.
std::string trace_directory(const Settings& settings);

class Tracing {
 public:
  // Writes down what `device` does from here on, unless [trace] is off. All of these outlive it; no stream of the
  // device may be at work when it goes. `peak_flops`: of the device, 0: unknown. Throws Error("file.*") where the
  // file cannot be made.
  Tracing(const Plan& plan, const std::string& resolved, const comm::World& world, tensor::Device& device,
          double peak_flops, trace::Flusher& flusher);
  // Flushes the file. Without done() or failed() before, the file says that the run was under way.
  ~Tracing();

  void done();
  void failed(const Error& error);

 private:
  tensor::Device& device_;
  trace::Flusher& flusher_;
  std::unique_ptr<trace::Recorder> recorder_;
};

}  // namespace ms::train
