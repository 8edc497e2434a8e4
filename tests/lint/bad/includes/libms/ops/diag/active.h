#pragma once
#include "tensor/device.h"
