# aarch64.cmake -- a toolchain file: 64-bit ARM under Linux by a cross compiler, tests run by qemu-user. See tools/test_aarch64.sh.
#
#     cmake --preset aarch64 -DPOLAR_SYSROOT=DIR     DIR/usr/lib/aarch64-linux-gnu holds a LAPACK, which libpolar loads where one is wanted
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(POLAR_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot" CACHE PATH "where the LAPACK for aarch64 is")
set(polar_sysroot_lib ${POLAR_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
  -E LD_LIBRARY_PATH=${polar_sysroot_lib}:${polar_sysroot_lib}/lapack:${polar_sysroot_lib}/blas)
