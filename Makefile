# Makefile -- a small front for CMake and Ninja. `make help` lists what it can do; all real rules are in CMakeLists.txt.
#
#     make                  builds, leaves the program at ./polar
#     make PRESET=debug     the same with another preset of CMakePresets.json
#     make CC=clang         the same with another compiler, in a folder of its own: build/cpu-clang

PRESET ?= cpu
PREFIX ?= /usr/local
ifneq ($(filter environment command,$(firstword $(origin CC))),)    # CC was given: CMake takes it from the environment
export CC
BUILD  := build/$(PRESET)-$(notdir $(lastword $(CC)))
else
BUILD  := build/$(PRESET)
endif

.DEFAULT_GOAL := all
.PHONY: all deps build tests demo test test-full bench install format clean help

all: build          ## install what is missing, build, leave the program at ./polar (the default)

deps:               ## install the packages the build needs, if any is missing (apt; otherwise names them)
	@sh tools/install_deps.sh

build: deps
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) -B $(BUILD)
	@cmake --build $(BUILD) --target polar_program
	@ln -sfn $(BUILD)/polar polar

tests: build
	@sh tools/install_deps.sh --tests
	@cmake --build $(BUILD)

demo: build         ## build, run `polar demo`
	@./polar demo

test: tests         ## build, run every test that needs no GPU
	@# one more at once than processors: some mostly wait
	@ctest --test-dir $(BUILD) -j $$(($$(nproc) + 1)) --output-on-failure --no-tests=error --timeout 1200

test-full: tests    ## sanitizers, every instruction set of this CPU, fault loops, a bounded fuzz run
	@sh tools/test_full.sh $(BUILD)

bench: build        ## build, run `polar bench`
	@./polar bench

test-cuda:          ## build the preset cuda, run what needs a GPU, then compute-sanitizer
	@$(MAKE) --no-print-directory tests PRESET=cuda BUILD=build/cuda
	@sh tools/test_cuda.sh build/cuda

install: build      ## headers, libraries, program, pkg-config and CMake files into DESTDIR + PREFIX (/usr/local)
	@cmake --build $(BUILD) --target polar_shared
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(abspath $(PREFIX))"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" -eq 0 ]; then ldconfig; fi

format:             ## lay the C and CUDA out as .clang-format says
	@sh tools/check_format.sh --fix

clean:              ## remove every build and ./polar
	rm -rf build polar

help:               ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
