# The cuda backend's kernels on the host, for tests without a GPU (tests/cuda_host/include/cuda_host.h): every .cu is preprocessed
# with stand-ins for CUDA's headers, converted and compiled as C++. Needs no toolkit. Programs in tests/cuda_host then know cuda:0.
#
#     cmake --build build/cpu --target cuda_host     # every program of tools/test_cuda.sh, and polar
#     sh tools/test_cuda.sh build/cpu/tests/cuda_host
#     cmake --build build/cpu --target cuda_race     # the same with the race detector, in tests/cuda_race; gcc alone
set(host_dir ${CMAKE_SOURCE_DIR}/tests/cuda_host)
set(host_out ${CMAKE_BINARY_DIR}/tests/cuda_host)
set(host_includes ${host_dir}/include ${host_dir} ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src/backends/cuda)
list(TRANSFORM host_includes PREPEND -I OUTPUT_VARIABLE host_flags)

# polar_convert(out source): its C++
function(polar_convert out source)
  get_filename_component(name ${source} NAME_WE)
  set(made ${host_out}/${name}.cpp)
  add_custom_command(OUTPUT ${made}
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -x c++ -E -MD -MF ${name}.d -MT ${made} -D_GNU_SOURCE -D__CUDACC__ -D__CUDA_ARCH__=900 -include cuda_runtime.h ${host_flags}
      ${source} -o ${name}.ii
    COMMAND ${POLAR_PYTHON} ${host_dir}/convert_cuda.py ${CMAKE_SOURCE_DIR}/ ${name}.ii ${made}
    DEPENDS ${source} ${host_dir}/convert_cuda.py DEPFILE ${host_out}/${name}.d WORKING_DIRECTORY ${host_out} VERBATIM
    COMMENT "Converting ${name}.cu for the host")
  set_source_files_properties(${made} PROPERTIES COMPILE_OPTIONS "-w;-Wno-psabi;-O1")    # nvcc reads them with its warnings
  set(${out} ${made} PARENT_SCOPE)
endfunction()

file(GLOB cu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backends/cuda/*.cu)
foreach(source ${cu_sources})
  polar_convert(made ${source})
  list(APPEND host_sources ${made})
endforeach()
file(MAKE_DIRECTORY ${host_out})
file(GLOB host_own CONFIGURE_DEPENDS ${host_dir}/*.cpp)
file(GLOB cuda_c_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backends/cuda/*.c)
add_custom_target(cuda_host_sources DEPENDS ${host_sources})

# The kernels, and once more for the race detector (tests/cuda_host/host_race.h): of -fsanitize=thread only the calls that gcc makes
# before loads and stores are wanted, so nothing is linked with it
set(race_flags -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -g1)
set(host_kinds cuda_host)
add_library(cuda_host_kernels OBJECT EXCLUDE_FROM_ALL ${host_sources})
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND host_kinds cuda_race)
  add_library(cuda_race_kernels OBJECT EXCLUDE_FROM_ALL ${host_sources})
  target_compile_options(cuda_race_kernels PRIVATE ${race_flags})
endif()
add_library(polar_cuda_host STATIC EXCLUDE_FROM_ALL ${host_own} ${cuda_c_sources})
target_link_libraries(polar_cuda_host PUBLIC polar)
list(TRANSFORM host_kinds APPEND _kernels OUTPUT_VARIABLE host_libraries)
foreach(library ${host_libraries} polar_cuda_host)
  target_include_directories(${library} BEFORE PRIVATE ${host_includes})
  target_compile_features(${library} PRIVATE cxx_std_17)
  target_compile_options(${library} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-ffp-contract=off;-fno-strict-aliasing;-O2>")
  add_dependencies(${library} cuda_host_sources)    # converted once
endforeach()

# The registry with cuda in its list, in front of libpolar's
add_library(polar_registry_cuda OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/src/device/registry.c)
target_compile_definitions(polar_registry_cuda PRIVATE POLAR_HAVE_CUDA)

# The libraries that the backend looks for when a device opens
foreach(library cublasLt:13 cusolver:12)
  string(REPLACE ":" ";" library ${library})
  list(GET library 0 name)
  list(GET library 1 version)
  string(TOUPPER ${name} upper)
  add_library(host_${name} SHARED EXCLUDE_FROM_ALL ${host_dir}/host_libraries.c)
  target_include_directories(host_${name} BEFORE PRIVATE ${host_dir}/include)
  target_compile_definitions(host_${name} PRIVATE HOST_${upper})
  set_target_properties(host_${name} PROPERTIES OUTPUT_NAME ${name} SOVERSION ${version} LIBRARY_OUTPUT_DIRECTORY ${host_out} C_VISIBILITY_PRESET default)
endforeach()

foreach(kind ${host_kinds})
  add_custom_target(${kind})
endforeach()

# polar_cuda_host(target [libraries]): the program once more, with cuda:0, in tests/cuda_host; with the race detector in tests/cuda_race
function(polar_cuda_host target)
  get_target_property(name ${target} OUTPUT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  foreach(kind ${host_kinds})
    add_executable(${target}_${kind} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${target}> $<TARGET_OBJECTS:polar_registry_cuda>
      $<TARGET_OBJECTS:${kind}_kernels>)
    target_link_libraries(${target}_${kind} PRIVATE ${ARGN} polar_lab polar_cuda_host)
    set_target_properties(${target}_${kind} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${kind}
      LINKER_LANGUAGE CXX BUILD_RPATH ${host_out})
    add_dependencies(${target}_${kind} host_cublasLt host_cusolver)
    add_dependencies(${kind} ${target}_${kind})
  endforeach()
endfunction()

# polar_cuda_host_test(program[:argument]), polar_cuda_race_test: run by ctest on cuda:0
function(polar_cuda_test kind what)
  string(REPLACE ":" ";" words ${what})
  list(POP_FRONT words program)
  set_target_properties(${program}_${kind} PROPERTIES EXCLUDE_FROM_ALL FALSE)
  string(JOIN ":" name ${program} ${kind} ${words})
  add_test(NAME ${name} COMMAND ${program}_${kind} cuda:0 ${words})
endfunction()
function(polar_cuda_host_test what)
  polar_cuda_test(cuda_host ${what})
endfunction()
function(polar_cuda_race_test what)
  if(cuda_race IN_LIST host_kinds)
    polar_cuda_test(cuda_race ${what})
  endif()
endfunction()

# The runner itself: what it does right, and planted faults
polar_convert(made ${host_dir}/planted_kernels.cu)
add_executable(test_cuda_host ${host_dir}/test_cuda_host.c ${made})
target_include_directories(test_cuda_host PRIVATE ${host_includes})
target_link_libraries(test_cuda_host PRIVATE polar_cuda_host)
add_test(NAME test_cuda_host COMMAND test_cuda_host)

# The race detector: races that no order of threads shows, and what must not be called one
if(cuda_race IN_LIST host_kinds)
  polar_convert(made ${host_dir}/planted_races.cu)
  set_source_files_properties(${made} PROPERTIES COMPILE_OPTIONS "-w;-Wno-psabi;-O1;${race_flags}")
  add_executable(test_cuda_race ${host_dir}/test_cuda_race.c ${made})
  target_include_directories(test_cuda_race PRIVATE ${host_includes})
  target_link_libraries(test_cuda_race PRIVATE polar_cuda_host)
  add_test(NAME test_cuda_race COMMAND test_cuda_race)
endif()
